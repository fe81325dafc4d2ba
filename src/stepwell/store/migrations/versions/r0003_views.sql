-- What dashboards and table editors read. The columns are a promise: add to their end, never rename or drop one.
-- Values are JSON text, because json columns with \u0000 in them break tools that look inside. Nothing in here parses
-- JSON, so no row can make a view fail. The views run with the rights of their owner; security_barrier keeps functions
-- of the reader away from rows that a view leaves out.

CREATE VIEW stepwell.workflow_project_kv_view WITH (security_barrier = true) AS
SELECT n.project_id, n.domain, n.scope, nullif(n.conversation_id, '') AS conversation_id, e.key,
  e.value::text AS value, e.value_type, e.value_bytes, e.revision,
  timestamptz 'epoch' + e.created_at * interval '1 microsecond' AS created_at,
  timestamptz 'epoch' + e.updated_at * interval '1 microsecond' AS updated_at,
  e.last_project, e.last_workflow_name, e.last_run_id, e.last_conversation_id
FROM stepwell.entry AS e JOIN stepwell.namespace AS n ON n.id = e.namespace_id
WHERE n.project_id <> '' AND n.domain IN ('kv', 'persistent_value');

CREATE VIEW stepwell.workflow_global_kv_view WITH (security_barrier = true) AS
SELECT n.domain, n.scope, nullif(n.workflow, '') AS workflow_name, nullif(n.conversation_id, '') AS conversation_id,
  e.key, e.value::text AS value, e.value_type, e.value_bytes, e.revision,
  timestamptz 'epoch' + e.created_at * interval '1 microsecond' AS created_at,
  timestamptz 'epoch' + e.updated_at * interval '1 microsecond' AS updated_at,
  e.last_project, e.last_workflow_name, e.last_run_id, e.last_conversation_id
FROM stepwell.entry AS e JOIN stepwell.namespace AS n ON n.id = e.namespace_id
WHERE n.project_id = '' AND n.domain IN ('kv', 'persistent_value');

-- Totals of tokens: a row a project, a conversation, and under the workflow scope model a row of all projects. A value
-- that is no total shows NULLs.
CREATE VIEW stepwell.token_usage_view WITH (security_barrier = true) AS
SELECT t.project_id, t.scope, t.workflow_name, t.conversation_id,
  substring(t.total FROM '"input"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS input_tokens,
  substring(t.total FROM '"output"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS output_tokens,
  substring(t.total FROM '"reasoning"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS reasoning_tokens,
  substring(t.total FROM '"cache_read"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS cache_read_tokens,
  substring(t.total FROM '"cache_write"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS cache_write_tokens,
  substring(t.total FROM '"total"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS total_tokens,
  substring(t.total FROM '"calls"\s*:\s*(\d{1,30})\s*[,}]')::numeric AS calls,
  t.created_at, t.updated_at
FROM (
  SELECT nullif(n.project_id, '') AS project_id, n.scope, nullif(n.workflow, '') AS workflow_name,
    nullif(n.conversation_id, '') AS conversation_id,
    CASE WHEN e.value_type = 'object' AND e.value_bytes <= 2000 THEN e.value::text END AS total,
    timestamptz 'epoch' + e.created_at * interval '1 microsecond' AS created_at,
    timestamptz 'epoch' + e.updated_at * interval '1 microsecond' AS updated_at
  FROM stepwell.namespace AS n JOIN stepwell.entry AS e ON e.namespace_id = n.id
  WHERE n.domain = 'kv' AND n.entries > 0 AND e.key = 'tokenUsage.total') AS t;

-- Runs as far as entries tell: those that were the last to write at least one entry.
CREATE VIEW stepwell.run_view WITH (security_barrier = true) AS
SELECT coalesce(e.last_project, nullif(n.project_id, '')) AS project_id, e.last_run_id AS run_id,
  max(e.last_workflow_name) AS workflow_name, max(e.last_conversation_id) AS conversation_id,
  timestamptz 'epoch' + min(e.updated_at) * interval '1 microsecond' AS first_write_at,
  timestamptz 'epoch' + max(e.updated_at) * interval '1 microsecond' AS last_write_at,
  count(*) AS entries
FROM stepwell.entry AS e JOIN stepwell.namespace AS n ON n.id = e.namespace_id
WHERE e.last_run_id IS NOT NULL
GROUP BY 1, 2;

-- Functions that later versions added to the schema are nobody's but ours either.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA stepwell FROM PUBLIC;
