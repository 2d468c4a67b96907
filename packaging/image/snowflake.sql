-- What the image runs in a new server: the extension in each database that is made from now on
\connect template1
CREATE EXTENSION snowflake;
\connect postgres
CREATE EXTENSION snowflake;
