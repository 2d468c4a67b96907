import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;

/** Results in the TAP format, as the programs of this directory print them. */
final class Tap {
    static final long OLD = (1L << 53) + 1;
    static final long FAR = (1L << 62) + 1;
    private static int count;

    private Tap() {
    }

    static void ok(boolean condition, String name) {
        count++;
        System.out.printf("%s %d - %s%n", condition ? "ok" : "not ok", count, name);
    }

    static void is(Object got, Object expected, String name) {
        ok(Objects.equals(got, expected), name);
        if (!Objects.equals(got, expected))
            System.out.printf("# got: %s%n# expected: %s%n", got, expected);
    }

    /**
     * Whether a section of doc/clients/ does what it shows, with a table that has the keys OLD and FAR,
     * of 2010 and of 2045: these are keys, back is the first one, read again.
     */
    static void form(String how, Long id, Long back, List<Long> batch, List<Long> some, List<Long> newest,
            List<Long> next, List<Long> period) {
        List<Long> minted = new ArrayList<>(batch);
        minted.add(0, id);
        List<Long> descending = new ArrayList<>(new TreeSet<>(minted).descendingSet());
        List<Long> first = new ArrayList<>(descending.subList(0, 19));
        first.add(0, FAR);

        is(back, id, how + "insert, and read back exactly");
        is(batch, new ArrayList<>(new TreeSet<>(batch)), how + "a batch, whose keys ascend");
        is(descending.size(), 1001, how + "and are 1,000");
        is(new TreeSet<>(some), new TreeSet<>(minted.subList(0, 2)), how + "a list of keys");
        is(newest, first, how + "newest first");
        is(next, descending.subList(19, 39), how + "the next page");
        is(new TreeSet<>(period), new TreeSet<>(minted), how + "rows of a period, by times");
    }

    static void done() {
        System.out.printf("1..%d%n", count);
    }
}
