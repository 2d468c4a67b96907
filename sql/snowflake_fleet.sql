/* Creates the objects that snowflake_fleet_create() creates in a PostgreSQL database that
 * is to be the coordinator of a fleet, if its role may not.  Afterwards, grant only these
 * privileges to the role with which the servers of the fleet log in:
 *
 *     GRANT USAGE ON SCHEMA snowflake_fleet TO fleet;
 *     GRANT SELECT, INSERT, UPDATE ON snowflake_fleet.records TO fleet;
 */
CREATE SCHEMA IF NOT EXISTS snowflake_fleet;
CREATE TABLE IF NOT EXISTS snowflake_fleet.records (key text PRIMARY KEY, value text NOT NULL);
