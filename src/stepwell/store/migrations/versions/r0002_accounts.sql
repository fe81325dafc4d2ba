-- Secrets are kept as hashes only: SHA-256 of random tokens, Argon2 of passwords. Times are microseconds since 1970.

CREATE TABLE stepwell.account (
  id uuid PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  password_hash text,
  admin boolean NOT NULL DEFAULT false,
  disabled boolean NOT NULL DEFAULT false,
  created_at bigint NOT NULL
);

CREATE TABLE stepwell.token (
  id uuid PRIMARY KEY,
  account_id uuid NOT NULL REFERENCES stepwell.account (id) ON DELETE CASCADE,
  label text NOT NULL,
  secret_hash bytea NOT NULL UNIQUE,
  role text,                          -- at most this role, whatever the account's is
  project_id text COLLATE "C",        -- only this project
  created_at bigint NOT NULL,
  expires_at bigint,
  last_used_at bigint
);
CREATE INDEX token_of_account ON stepwell.token (account_id);

CREATE TABLE stepwell.project (
  id text COLLATE "C" PRIMARY KEY,
  name text NOT NULL,
  created_at bigint NOT NULL,
  relations json NOT NULL DEFAULT '[]',
  relations_at bigint
);

CREATE TABLE stepwell.membership (
  project_id text COLLATE "C" NOT NULL REFERENCES stepwell.project (id) ON DELETE CASCADE,
  account_id uuid NOT NULL REFERENCES stepwell.account (id) ON DELETE CASCADE,
  role text NOT NULL CHECK (role IN ('guest', 'developer', 'maintainer', 'owner')),
  PRIMARY KEY (project_id, account_id)
);
CREATE INDEX membership_of_account ON stepwell.membership (account_id);
