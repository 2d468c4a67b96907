import java.io.Serializable;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.FetchType;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.ManyToOne;
import javax.persistence.OneToMany;
import javax.persistence.Table;
import javax.persistence.Temporal;
import javax.persistence.TemporalType;
import org.hibernate.HibernateException;
import org.hibernate.MappingException;
import org.hibernate.Query;
import org.hibernate.Session;
import org.hibernate.annotations.GenericGenerator;
import org.hibernate.annotations.Immutable;
import org.hibernate.cfg.Configuration;
import org.hibernate.engine.SessionImplementor;
import org.hibernate.exception.DataException;
import org.hibernate.id.IdentifierGenerator;
import org.hibernate.tool.hbm2ddl.SchemaValidator;
import org.hibernate.type.LongType;

/** Hibernate, above PostgreSQL's JDBC driver.  To be run by clients.pl. */
public class HibernateClient {
    private static final long BIG = (1L << 53) + 1;
    private static final Date hourAgo = new Date(System.currentTimeMillis() - 3600 * 1000);

    /** Asks the server for the key before the row is inserted. */
    public static class Minter implements IdentifierGenerator {
        @Override
        public Serializable generate(SessionImplementor session, Object entity) {
            try (PreparedStatement mint = session.connection().prepareStatement("SELECT snowflake_next()");
                    ResultSet row = mint.executeQuery()) {
                row.next();
                return row.getLong(1);
            } catch (SQLException e) {
                throw new HibernateException(e);
            }
        }
    }

    @Entity(name = "Purchase")
    @Table(name = "orders")
    public static class Order {
        @Id @GeneratedValue(generator = "minter") @GenericGenerator(name = "minter", strategy = "HibernateClient$Minter")
        @Column(columnDefinition = "snowflake")
        Long id;
        String item;
        @OneToMany(mappedBy = "order")
        List<Line> lines;
    }

    @Entity(name = "Line")
    @Table(name = "lines")
    public static class Line {
        @Id
        @GeneratedValue(generator = "minter")
        @GenericGenerator(name = "minter", strategy = "HibernateClient$Minter")
        Long id;
        @ManyToOne(fetch = FetchType.LAZY)
        Order order;
    }

    @Entity(name = "OrderView") @Immutable @Table(name = "orders_view")
    public static class OrderView {
        @Id @Column(columnDefinition = "snowflake")
        Long id;
        String item;
        @Column(name = "created_at", columnDefinition = "snowflake_time") @Temporal(TemporalType.TIMESTAMP)
        Date createdAt;
    }

    /** Does not say of which type the column is. */
    @Entity
    @Table(name = "orders")
    public static class Undeclared {
        @Id
        Long id;
    }

    private static Object value(Query query) {
        return query.uniqueResult();
    }

    private static Configuration configure() {
        return new Configuration()
                .setProperty("hibernate.connection.url", String.format("jdbc:postgresql://127.0.0.1:%s/%s?user=%s",
                        System.getenv("PGPORT"), System.getenv("PGDATABASE"), System.getenv("PGUSER")))
                .setProperty("hibernate.connection.driver_class", "org.postgresql.Driver")
                .setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect")
                .setProperty("hibernate.temp.use_jdbc_metadata_defaults", "false");
    }

    public static void main(String[] arguments) {
        Configuration configuration = configure().addAnnotatedClass(Order.class).addAnnotatedClass(Line.class);
        Session session = configuration.setProperty("hibernate.hbm2ddl.auto", "create")
                .buildSessionFactory().openSession();
        Order order = new Order();
        Line line = new Line();

        System.out.printf("# client: Hibernate %s%n", System.getenv("HIBERNATE_VERSION"));
        session.beginTransaction();
        Tap.is(session.createSQLQuery("SELECT CAST(string_agg(format_type(atttypid, atttypmod), ' '"
                + " ORDER BY attrelid, attname) AS text) FROM pg_attribute WHERE attname ~ 'id$' AND attnum > 0"
                + " AND attrelid IN (CAST('orders' AS regclass), CAST('lines' AS regclass))").uniqueResult(),
                "bigint snowflake snowflake", "the schema: the key, and what references it, have the type");

        order.item = "default";
        session.save(order);
        line.order = order;
        session.save(line);
        session.flush();
        session.clear();
        Tap.ok(order.id > BIG && line.id > order.id, "save() mints a key");

        Tap.is(((Order) session.get(Order.class, order.id)).item, "default", "get()");
        Tap.is(value(session.createQuery("SELECT item FROM Purchase WHERE id = :id").setLong("id", order.id)),
                "default", "filter by a Long");
        List<Long> many = new ArrayList<>();
        for (long id = 1; id < 1000; id++)
            many.add(id);
        many.add(order.id);
        Tap.is(value(session.createQuery("SELECT count(*) FROM Purchase WHERE id IN (:many)")
                .setParameterList("many", many)), 1L, "filter by a list of Longs");
        Tap.is(session.createQuery("SELECT id FROM Purchase WHERE id < :id ORDER BY id DESC")
                .setLong("id", order.id + 1).setMaxResults(20).list(), Arrays.asList(order.id),
                "the next page, by key");
        Query since =
            session.createQuery("FROM Purchase WHERE id >= snowflake_lower_bound(:time)").setTimestamp("time", hourAgo);
        Tap.is(since.list().size(), 1, "filter by a time, by a function");
        Tap.is(value(session.createQuery("SELECT count(*) FROM Purchase WHERE id < CAST(:time AS timestamp)")
                .setTimestamp("time", hourAgo)), 0L, "filter by a time, with a cast");
        Tap.is(value(session.createQuery("SELECT max(id) FROM Purchase")), order.id, "max() is a Long");

        Tap.is(value(session.createQuery("SELECT l.order.item FROM Line l")), "default", "a foreign key, with a join");
        Tap.is(((Line) session.get(Line.class, line.id)).order.id, order.id, "the key of what it references");
        Tap.is(((Order) session.get(Order.class, order.id)).lines.size(), 1, "the way back");

        Tap.is(value(session.createSQLQuery("SELECT id FROM orders").addScalar("id", LongType.INSTANCE)), order.id,
                "a native query, of which the type is told");
        Tap.is(value(session.createSQLQuery("SELECT CAST(to_json(id) AS text) FROM orders")),
                "\"" + order.id + "\"", "JSON has a string for snowflake");
        try {
            Tap.is(value(session.createSQLQuery("SELECT id FROM orders")), "an error", "it is refused otherwise");
        } catch (MappingException e) {
            Tap.ok(true, "it is refused otherwise");
        }
        try {
            Tap.is(value(session.createQuery("SELECT count(*) FROM Purchase WHERE id >= :time")
                    .setTimestamp("time", hourAgo)), "an error", "a time without a cast is refused");
        } catch (DataException e) {
            Tap.is(e.getSQLException().getSQLState(), "22P02", "a time without a cast is refused");
        }
        new SchemaValidator(configuration).validate();
        Tap.ok(true, "hbm2ddl.auto=validate takes the columns");
        try {
            new SchemaValidator(configure().addAnnotatedClass(Undeclared.class)).validate();
            Tap.ok(false, "but not without the columnDefinition");
        } catch (HibernateException e) {
            Tap.ok(e.getMessage().endsWith("Found: snowflake, expected: int8"), "but not without the columnDefinition");
        }
        sections(configure().addAnnotatedClass(Order.class).addAnnotatedClass(Line.class).addAnnotatedClass(OrderView.class)
                .setProperty("hibernate.jdbc.batch_size", "100"), session);
        Tap.done();
    }

    private static List<Long> keys(List<?> rows) {
        List<Long> keys = new ArrayList<>();

        for (Object row : rows)
            keys.add(row instanceof Order ? ((Order) row).id : ((OrderView) row).id);
        return keys;
    }

    /** The form of all sections. */
    private static void sections(Configuration configuration, Session first) {
        Date start = hourAgo, end = new Date(start.getTime() + 7200 * 1000);
        List<Long> batch = new ArrayList<>();
        Order order = new Order();

        first.clear();
        first.getTransaction().rollback();
        first.beginTransaction();
        first.createSQLQuery("INSERT INTO orders VALUES (" + Tap.OLD + "), (" + Tap.FAR + ")").executeUpdate();
        first.createSQLQuery("CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders").executeUpdate();
        first.getTransaction().commit();
        new SchemaValidator(configuration).validate();
        Tap.ok(true, "hbm2ddl.auto=validate takes the view");
        Session session = configuration.buildSessionFactory().openSession();
        session.beginTransaction();

        order.item = "tea";
        session.save(order);
        session.flush();
        session.clear();
        Order back = (Order) session.get(Order.class, order.id);
        for (int i = 0; i < 1000; i++) {
            Order one = new Order();
            one.item = "item " + i;
            batch.add((Long) session.save(one));
        }
        session.flush();
        List<?> some = session.createQuery("FROM Purchase WHERE id IN (:keys)")
                .setParameterList("keys", Arrays.asList(order.id, batch.get(0))).list();
        List<?> newest = session.createQuery("FROM Purchase ORDER BY id DESC").setMaxResults(20).list();
        List<?> next = session.createQuery("FROM Purchase WHERE id < :last ORDER BY id DESC")
                .setLong("last", ((Order) newest.get(19)).id).setMaxResults(20).list();
        List<?> period = session.createQuery("FROM OrderView WHERE createdAt >= :start AND createdAt < :end")
                .setTimestamp("start", start).setTimestamp("end", end).list();
        Tap.form("", order.id, back.id, batch, keys(some), keys(newest), keys(next), keys(period));
        Tap.ok(((OrderView) period.get(0)).createdAt.after(start), "the time of the view is a Date");
    }
}
