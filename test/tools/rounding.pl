# Which readers round an ID that they read as a number: the table of doc/tools.md, for pandas, for
# JavaScript and for GraphQL.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(new_node);
use Test::More;

my $page = slurp_file("$FindBin::RealBin/../../doc/tools.md");
my $node = new_node('main');
my $id = '2124072316831797249';

$node->start;
$node->safe_psql(
	'postgres', qq{
	CREATE EXTENSION snowflake;
	CREATE TABLE t (id snowflake PRIMARY KEY, ref snowflake);
	INSERT INTO t VALUES ($id - 1, $id), ($id + 1, NULL)});

# Run a program; returns the lines that it prints, or undef if it ends with 77
sub lines
{
	my ($program, $text) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/program';
	my ($stdout, $stderr) = ('', '');

	append_to_file($file, $text);
	IPC::Run::run([ split(' ', $program), $file, $node->host, $node->port ],
		'<', \undef, '>', \$stdout, '2>', \$stderr);
	return if $? >> 8 == 77;
	is($stderr, '', "$program says nothing else");
	return split /\n/, $stdout;
}

my @pandas = lines('/usr/bin/python3 -W ignore', <<'END');
import io, sys
try:
    import pandas, psycopg2
except ImportError:
    sys.exit(77)
conn = psycopg2.connect(host=sys.argv[1], port=sys.argv[2], dbname='postgres')
print(pandas.__version__)
for what in 'ref', 'ref::bigint', 'ref::text':
    column = pandas.read_sql(f'SELECT {what} AS ref FROM t ORDER BY id', conn).ref
    print(column.dtype, column[0] if column.dtype == object else int(column[0]))
    if column.dtype == object:
        column = column.astype('Int64')
        print(column.dtype, int(column[0]))
text = 'ref\n2124072316831797249\n""\n'
for options in {}, {'dtype': {'ref': 'Int64'}}, {'dtype': {'ref': 'string'}}:
    column = pandas.read_csv(io.StringIO(text), skip_blank_lines=False, **options).ref.astype('Int64')
    print(int(column[0]) == 2124072316831797249)
column = pandas.read_sql('SELECT id::bigint AS id FROM t ORDER BY id', conn).id
print(column.dtype, int(column[0]))
END
SKIP:
{
	skip 'no pandas with psycopg2', 3 if !@pandas;
	diag 'pandas ' . shift @pandas;
	my $rounded = sprintf '%.0f', $id;
	is( join("\n", @pandas),
		join("\n",
			"object $id",
			"Int64 $id",
			"float64 $rounded",
			"object $id",
			"Int64 $id",
			'False',
			'False',
			'True',
			'int64 ' . ($id - 1)),
		'pandas rounds a bigint column that has a null');
	isnt($rounded, $id, 'which is another ID');
}

my $modules = ($ENV{SNOWFLAKE_WORK} // '') . '/npm/tools/node_modules';
$modules = "$FindBin::RealBin/node_modules" if -e "$FindBin::RealBin/node_modules";
my $json = $node->safe_psql('postgres',
	'SELECT json_agg(json_build_object($$id$$, ref, $$number$$, ref::bigint)) FROM t WHERE ref IS NOT NULL'
);
SKIP:
{
	skip 'no graphql from npm', 4 unless -e "$modules/graphql/package.json";
	my ($version) = slurp_file("$modules/graphql/package.json") =~ /"version": "(.*?)"/;
	like($page, qr/tried, graphql \Q$version\E/, "the page has the version, $version");
	my @javascript = lines('node', <<"END");
const { buildSchema, graphqlSync } = require('$modules/graphql');
const [row] = JSON.parse('$json');
console.log(row.id, row.number === 2124072316831797200);
const schema = buildSchema('type Query { asId: ID, asString: String, asInt: Int, asFloat: Float, echo(id: ID): ID }');
const rootValue = { asId: row.id, asString: row.id, asInt: row.id, asFloat: row.id, echo: ({ id }) => id };
const run = (source, variableValues) => {
	const { data, errors } = graphqlSync({ schema, source, rootValue, variableValues });
	console.log(errors ? errors[0].message : JSON.stringify(Object.values(data)[0]));
};
run('{ asId }');
run('{ asString }');
run('{ asInt }');
run('{ asFloat }');
run('query (\$id: ID) { echo(id: \$id) }', JSON.parse('{ "id": "$id" }'));
run('query (\$id: ID) { echo(id: \$id) }', JSON.parse('{ "id": $id }'));
END
	is( join("\n", @javascript),
		join("\n",
			"$id true", qq{"$id"}, qq{"$id"},
			qq{Int cannot represent non 32-bit signed integer value: "$id"},
			'2124072316831797200', qq{"$id"}, '"2124072316831797200"'),
		'JavaScript rounds a number, and so does GraphQL what is not an ID or a String');
}

$node->stop;
done_testing();
