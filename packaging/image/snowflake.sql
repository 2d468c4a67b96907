-- What the image runs in a new server: the extension in the database of POSTGRES_DB, to which
-- this is connected, and in each that is made from now on
CREATE EXTENSION snowflake;
\connect template1
CREATE EXTENSION IF NOT EXISTS snowflake;
\connect postgres
CREATE EXTENSION IF NOT EXISTS snowflake;
