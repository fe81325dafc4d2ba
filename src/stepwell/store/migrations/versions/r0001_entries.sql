-- One table holds the entries of all namespaces. A missing part of a namespace is the empty string (ids are never
-- empty), so that one unique constraint covers them all. Times are microseconds since 1970 UTC. Values are of type
-- json, which keeps the text to the character; jsonb reorders keys and refuses \u0000.

CREATE TABLE stepwell.namespace (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project_id text COLLATE "C" NOT NULL,
  domain text COLLATE "C" NOT NULL,
  scope text COLLATE "C" NOT NULL,
  workflow text COLLATE "C" NOT NULL,
  conversation_id text COLLATE "C" NOT NULL,
  revision bigint NOT NULL DEFAULT 0,
  updated_at bigint NOT NULL DEFAULT 0,
  minute bigint NOT NULL DEFAULT 0,   -- of updated_at: the index on it need not change with every commit
  entries bigint NOT NULL DEFAULT 0,
  watched_until timestamptz,          -- commits are announced only while somebody watches
  lease uuid,                         -- who holds the namespace's lock
  lease_presence integer,             -- the advisory lock that proves the holder's process to be alive
  lease_expires timestamptz,
  lease_holder text,
  UNIQUE (project_id, domain, scope, workflow, conversation_id)
) WITH (fillfactor = 70);
CREATE INDEX namespace_by_minute ON stepwell.namespace (project_id, domain, scope, minute DESC);

CREATE TABLE stepwell.entry (
  namespace_id bigint NOT NULL REFERENCES stepwell.namespace (id),
  key text COLLATE "C" NOT NULL,
  value json NOT NULL,
  value_type text COLLATE "C" NOT NULL,
  value_bytes integer NOT NULL,
  revision bigint NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  last_project text,
  last_workflow_name text,
  last_run_id text,
  last_conversation_id text,
  PRIMARY KEY (namespace_id, key)
) WITH (fillfactor = 85);

-- What each commit changed: the receipt of whoever lost the answer, and what watchers read.
CREATE TABLE stepwell.commit_log (
  namespace_id bigint NOT NULL REFERENCES stepwell.namespace (id),
  revision bigint NOT NULL,
  commit_id uuid NOT NULL UNIQUE,
  at bigint NOT NULL,
  keys text[] NOT NULL,
  removed text[] NOT NULL,
  PRIMARY KEY (namespace_id, revision)
);

CREATE FUNCTION stepwell.micros() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION stepwell.json_type(p_text text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE left(p_text, 1) WHEN '{' THEN 'object' WHEN '[' THEN 'array' WHEN '"' THEN 'string'
   WHEN 't' THEN 'boolean' WHEN 'f' THEN 'boolean' WHEN 'n' THEN 'null' ELSE 'number' END $$;

-- A lease lives while its time runs and the process behind it keeps its advisory lock.
CREATE FUNCTION stepwell.lease_alive(p_presence integer, p_expires timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT p_expires > clock_timestamp() AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND classid = 7357 AND objid::bigint = p_presence AND objsubid = 2 AND granted
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
$$;

-- One commit: outcome is done, conflict (keys and their current revisions), locked (holder) or lost (the lease).
CREATE FUNCTION stepwell.commit_entries(
  p_namespace bigint, p_commit uuid, p_repeat boolean, p_lease uuid,
  p_check_keys text[], p_check_revisions bigint[], p_keys text[], p_values text[],
  p_project text, p_workflow text, p_run text, p_conversation text,
  OUT outcome text, OUT revision bigint, OUT at bigint, OUT keys text[], OUT numbers bigint[], OUT removed text[],
  OUT holder text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  ns record;
  fresh bigint := 0;
BEGIN
  SELECT n.revision, n.updated_at, n.watched_until, n.lease, n.lease_presence, n.lease_expires, n.lease_holder
    INTO ns FROM stepwell.namespace AS n WHERE n.id = p_namespace FOR NO KEY UPDATE;
  IF p_repeat THEN
    SELECT c.revision, c.at, c.keys, c.removed INTO revision, at, keys, removed
      FROM stepwell.commit_log AS c WHERE c.commit_id = p_commit AND c.namespace_id = p_namespace;
    IF FOUND THEN
      SELECT array_agg(k.key), array_agg(coalesce(e.created_at, commit_entries.at)) INTO keys, numbers
        FROM unnest(commit_entries.keys) AS k (key)
        LEFT JOIN stepwell.entry AS e ON e.namespace_id = p_namespace AND e.key = k.key;
      outcome := 'done';
      RETURN;
    END IF;
  END IF;
  IF ns.lease IS DISTINCT FROM p_lease THEN
    IF p_lease IS NOT NULL THEN
      outcome := 'lost';
      RETURN;
    ELSIF stepwell.lease_alive(ns.lease_presence, ns.lease_expires) THEN
      outcome := 'locked';
      holder := ns.lease_holder;
      RETURN;
    END IF;
  END IF;
  IF cardinality(p_check_keys) > 0 THEN
    SELECT array_agg(c.key), array_agg(coalesce(e.revision, 0)) INTO keys, numbers
      FROM unnest(p_check_keys, p_check_revisions) AS c (key, revision)
      LEFT JOIN stepwell.entry AS e ON e.namespace_id = p_namespace AND e.key = c.key
      WHERE coalesce(e.revision, 0) <> c.revision;
    IF commit_entries.keys IS NOT NULL THEN
      outcome := 'conflict';
      RETURN;
    END IF;
  END IF;
  at := greatest(stepwell.micros(), ns.updated_at + 1);  -- a clock moved back changes no order
  revision := ns.revision + 1;
  removed := '{}';
  IF array_position(p_values, NULL) IS NOT NULL THEN
    WITH gone AS (
      DELETE FROM stepwell.entry AS e
      USING unnest(p_keys, p_values) AS w (key, value)
      WHERE e.namespace_id = p_namespace AND e.key = w.key AND w.value IS NULL
      RETURNING e.key)
    SELECT coalesce(array_agg(gone.key), '{}') INTO removed FROM gone;
  END IF;
  WITH put AS (
    INSERT INTO stepwell.entry AS e
    SELECT p_namespace, w.key, w.value::json, stepwell.json_type(w.value), octet_length(w.value),
      commit_entries.revision, commit_entries.at, commit_entries.at, p_project, p_workflow, p_run, p_conversation
    FROM unnest(p_keys, p_values) AS w (key, value) WHERE w.value IS NOT NULL
    ON CONFLICT ON CONSTRAINT entry_pkey DO UPDATE SET
      value = excluded.value, value_type = excluded.value_type, value_bytes = excluded.value_bytes,
      revision = excluded.revision, updated_at = excluded.updated_at, last_project = excluded.last_project,
      last_workflow_name = excluded.last_workflow_name, last_run_id = excluded.last_run_id,
      last_conversation_id = excluded.last_conversation_id
    RETURNING e.key, e.created_at, e.created_at = commit_entries.at AS fresh)
  SELECT coalesce(array_agg(put.key), '{}'), array_agg(put.created_at), count(*) FILTER (WHERE put.fresh)
    INTO keys, numbers, fresh FROM put;
  IF cardinality(commit_entries.keys) = 0 AND cardinality(commit_entries.removed) = 0 THEN
    outcome := 'done';
    revision := ns.revision;
    at := ns.updated_at;
    RETURN;
  END IF;
  INSERT INTO stepwell.commit_log
    VALUES (p_namespace, commit_entries.revision, p_commit, commit_entries.at, commit_entries.keys, commit_entries.removed);
  UPDATE stepwell.namespace AS n SET
    revision = commit_entries.revision, updated_at = commit_entries.at, minute = commit_entries.at / 60000000,
    entries = n.entries + fresh - cardinality(commit_entries.removed),
    lease = p_lease
  WHERE n.id = p_namespace;
  IF ns.watched_until > clock_timestamp() THEN
    PERFORM pg_notify('stepwell', p_namespace::text);
  END IF;
  outcome := 'done';
END $$;

-- The commit that is made most: one value, no check, no lease. Outcome is done, or other: then commit_entries decides.
CREATE FUNCTION stepwell.commit_value(
  p_namespace bigint, p_commit uuid, p_repeat boolean, p_key text, p_value text,
  p_project text, p_workflow text, p_run text, p_conversation text,
  OUT outcome text, OUT revision bigint, OUT at bigint, OUT created bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  watched timestamptz;
BEGIN
  IF NOT p_repeat THEN
    UPDATE stepwell.namespace AS n SET
      revision = n.revision + 1,
      updated_at = greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, n.updated_at + 1),
      minute = greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, n.updated_at + 1) / 60000000
      WHERE n.id = p_namespace AND n.lease IS NULL
      RETURNING n.revision, n.updated_at, n.watched_until INTO revision, at, watched;
  END IF;
  IF at IS NULL THEN
    outcome := 'other';
    RETURN;
  END IF;
  INSERT INTO stepwell.entry AS e
    VALUES (p_namespace, p_key, p_value::json, stepwell.json_type(p_value), octet_length(p_value),
      commit_value.revision, commit_value.at, commit_value.at, p_project, p_workflow, p_run, p_conversation)
    ON CONFLICT ON CONSTRAINT entry_pkey DO UPDATE SET
      value = excluded.value, value_type = excluded.value_type, value_bytes = excluded.value_bytes,
      revision = excluded.revision, updated_at = excluded.updated_at, last_project = excluded.last_project,
      last_workflow_name = excluded.last_workflow_name, last_run_id = excluded.last_run_id,
      last_conversation_id = excluded.last_conversation_id
    RETURNING e.created_at INTO created;
  IF created = at THEN
    UPDATE stepwell.namespace AS n SET entries = n.entries + 1 WHERE n.id = p_namespace;
  END IF;
  INSERT INTO stepwell.commit_log
    VALUES (p_namespace, commit_value.revision, p_commit, commit_value.at, ARRAY[p_key], '{}');
  IF watched > clock_timestamp() THEN
    PERFORM pg_notify('stepwell', p_namespace::text);
  END IF;
  outcome := 'done';
END $$;

CREATE FUNCTION stepwell.clear_entries(
  p_namespace bigint, p_commit uuid, p_repeat boolean,
  p_project text, p_workflow text, p_run text, p_conversation text,
  OUT outcome text, OUT revision bigint, OUT at bigint, OUT keys text[], OUT numbers bigint[], OUT removed text[],
  OUT holder text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  all_keys text[];
BEGIN
  PERFORM 1 FROM stepwell.namespace AS n WHERE n.id = p_namespace FOR NO KEY UPDATE;
  SELECT coalesce(array_agg(e.key), '{}') INTO all_keys FROM stepwell.entry AS e WHERE e.namespace_id = p_namespace;
  SELECT c.* INTO outcome, revision, at, keys, numbers, removed, holder FROM stepwell.commit_entries(
    p_namespace, p_commit, p_repeat, NULL, '{}', '{}', all_keys,
    array_fill(NULL::text, ARRAY[cardinality(all_keys)]), p_project, p_workflow, p_run, p_conversation) AS c;
END $$;

CREATE FUNCTION stepwell.acquire_lease(
  p_namespace bigint, p_lease uuid, p_holder text, p_presence integer, p_seconds double precision
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  ns record;
BEGIN
  SELECT n.lease, n.lease_presence, n.lease_expires, n.lease_holder INTO ns
    FROM stepwell.namespace AS n WHERE n.id = p_namespace FOR NO KEY UPDATE;
  IF ns.lease IS NOT NULL AND ns.lease <> p_lease AND stepwell.lease_alive(ns.lease_presence, ns.lease_expires) THEN
    RETURN ns.lease_holder;
  END IF;
  UPDATE stepwell.namespace SET lease = p_lease, lease_presence = p_presence, lease_holder = p_holder,
    lease_expires = clock_timestamp() + make_interval(secs => p_seconds) WHERE id = p_namespace;
  RETURN NULL;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA stepwell FROM PUBLIC;
