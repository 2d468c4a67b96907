// The type snowflake for drizzle.  Keys are strings, which are exact; numbers would not be.
import { sql } from 'drizzle-orm';
import { customType } from 'drizzle-orm/pg-core';

export const snowflake = customType<{ data: string; driverData: string }>({
  dataType() {
    return 'snowflake';
  },
});

// the default of a key that the server mints
export const minted = sql`snowflake_next()`;
