-- A consumer in SQL: it hands each row of a table to a procedure, once and in the
-- order of the IDs, and stores how far it is in the same transaction.
--
--   CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text NOT NULL);
--   \i consumer.sql
--   CALL consume_orders('mailer');
--
-- Replace handle_order() by what is to be done.  Several consumers may have different names; of one name only one
-- works at a time.

CREATE TABLE consumers (
    name     text PRIMARY KEY,
    position bigint NOT NULL            -- every row up to this ID was handled
);

CREATE TABLE handled_orders (id bigint PRIMARY KEY, customer text, handled_at timestamptz DEFAULT now());

CREATE PROCEDURE handle_order(o orders) LANGUAGE sql AS $$
    INSERT INTO handled_orders (id, customer) VALUES (o.id, o.customer);
$$;

CREATE PROCEDURE consume_orders(consumer text, max_rows integer DEFAULT 1000) LANGUAGE plpgsql AS $$
DECLARE
    seen bigint;
    o    orders;
BEGIN
    INSERT INTO consumers VALUES (consumer, 0) ON CONFLICT DO NOTHING;
    LOOP
        -- the lock keeps a second consumer of this name waiting
        SELECT position INTO seen FROM consumers WHERE name = consumer FOR UPDATE;
        FOR o IN SELECT * FROM orders WHERE id > seen AND id <= snowflake_frontier() ORDER BY id LIMIT max_rows LOOP
            CALL handle_order(o);
            seen := o.id;
        END LOOP;
        EXIT WHEN NOT FOUND;
        UPDATE consumers SET position = seen WHERE name = consumer;
        COMMIT;
    END LOOP;
END $$;
