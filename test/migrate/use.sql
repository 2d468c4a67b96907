-- What the application does, by its own SQL, after the keys were converted
\set ON_ERROR_STOP 0
SET app.tenant_id = 1; SET app.user_id = '5';
\echo == 1 insert of each table by its own columns
INSERT INTO app.customers (tenant_id, name) VALUES (1, 'new') RETURNING id;
SELECT max(id) AS c FROM app.customers \gset
INSERT INTO app.orders (tenant_id, customer_id) VALUES (1, :c) RETURNING id, number;
SELECT max(id) AS o FROM app.orders \gset
UPDATE app.orders SET status = 'paid' WHERE id = :o;
INSERT INTO app.comments (subject_type, subject_id, body) VALUES ('Order', :o, 'x') RETURNING id;
INSERT INTO app.taggings VALUES (1, 'Order', :o);
INSERT INTO app.tickets (customer_id, subject) VALUES (:c, 'x') RETURNING id;
INSERT INTO app.customer_merges VALUES (:c, 1);
INSERT INTO app.products (sku) VALUES ('new') RETURNING id; SELECT max(id) AS p FROM app.products \gset
UPDATE app.products SET related_ids = related_ids || :p WHERE id = 1;
UPDATE app.products SET related_ids = ARRAY[:p] WHERE id = 1;
INSERT INTO app.categories (name) VALUES ('x') RETURNING id; SELECT max(id) AS cat FROM app.categories \gset
UPDATE app.categories SET path = ARRAY[:cat] WHERE id = :cat;
INSERT INTO app.subscriptions (customer_id, product_id, first_order_id) VALUES (:c, :p, :o);
INSERT INTO app.users (tenant_id, email) VALUES (1, 'neu@example.org') RETURNING id, badge; SELECT max(id) AS u FROM app.users \gset
INSERT INTO app.comments (subject_type, subject_id, body, mentions) VALUES ('Order', 1, 'x', ARRAY[:u]);
INSERT INTO billing.invoices (order_id, customer_id, amount) VALUES (:o, :c, 1) RETURNING id;
INSERT INTO app.events (user_id, order_id, kind) VALUES (:u, :o, 'placed') RETURNING id;
INSERT INTO app.jobs (kind) VALUES ('x') RETURNING id;
INSERT INTO app.warehouses (name) VALUES ('x') RETURNING id; SELECT max(id) AS w FROM app.warehouses \gset
INSERT INTO app.stock VALUES (:w, :p, 1);
INSERT INTO app.documents (title) VALUES ('d') RETURNING id;
INSERT INTO app.contracts (title) VALUES ('d') RETURNING id;
\echo == 2 functions
SELECT app.place_order(1, ARRAY[1,2]);
SELECT app.place_order(:c, ARRAY[1,2]);
SELECT app.place_order(1, ARRAY[:p]);
SELECT app.clone_order(1);
SELECT id FROM app.get_order(:o);
SELECT id FROM app.get_order(1);
SELECT app.order_total(:o);
SELECT * FROM app.customer_orders(1) LIMIT 1;
SELECT * FROM app.customer_orders(:c) LIMIT 1;
SELECT app.last_order();
SELECT * FROM app.category_tree(1) LIMIT 1;
SELECT app.order_card(:o);
SELECT ROW(:o, 1)::app.line_ref;
\echo == 3 JSON
SELECT row_to_json(o) FROM (SELECT id, customer_id, address_id, snapshot FROM app.orders WHERE id = 1) o;
SELECT row_to_json(o) FROM (SELECT id, customer_id FROM app.orders WHERE id = :o) o;
SELECT jsonb_path_query(to_jsonb(o), '$.id ? (@ > 5)') FROM app.orders o WHERE id = :o;
SELECT count(*) FROM app.orders o WHERE (to_jsonb(o) ->> 'customer_id')::integer = (snapshot ->> 'customer_id')::integer AND id < 1000;
\echo == 4 roles and policies
SET ROLE depot_web; SELECT count(*) FROM (SELECT id, status FROM app.orders) o; UPDATE app.orders SET status = 'x' WHERE id = 4; INSERT INTO app.tickets (customer_id, subject) VALUES (1, 'x'); RESET ROLE;
SET ROLE depot_ro; SELECT count(*) FROM app.order_summary; SELECT count(*) FROM app.sales_by_product; RESET ROLE;
UPDATE app.order_status SET status = 'view' WHERE id = 2; UPDATE app.orders SET id = 5 WHERE id = 7;
