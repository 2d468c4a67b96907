// The tables of drizzle_client.js, which drizzle-kit reads, too.
import { pgTable, pgView, text, timestamp } from 'drizzle-orm/pg-core';
import { minted, snowflake } from './drizzle_snowflake.ts';

export const orders = pgTable('orders', { id: snowflake().primaryKey().default(minted), item: text() });

export const ordersView = pgView('orders_view', {
  id: snowflake(),
  item: text(),
  createdAt: timestamp('created_at', { withTimezone: true }),
}).existing();
