import java.util.Objects;

/** Results in the TAP format, as the programs of this directory print them. */
final class Tap {
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

    static void done() {
        System.out.printf("1..%d%n", count);
    }
}
