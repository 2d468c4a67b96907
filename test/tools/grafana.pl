# monitoring/grafana.json conforms to Grafana's schema of a dashboard.
#
# The schema, package @grafana/schema of npm, is types of TypeScript.  So the dashboard becomes a program that has nothing
# but constants of these types, which the compiler accepts or not.  A field that the schema does not know is an error.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $modules = ($ENV{SNOWFLAKE_WORK} // '') . '/npm/tools/node_modules';
$modules = "$FindBin::RealBin/node_modules" if -e "$FindBin::RealBin/node_modules";
plan skip_all => 'no Grafana schema from npm'
  unless -e "$modules/\@grafana/schema" && -e "$modules/typescript";

my $json = JSON::PP->new->canonical->pretty;
my $types = "$modules/\@grafana/schema/dist/types/raw";
my $dashboard = decode_json(slurp_file("$FindBin::RealBin/../../monitoring/grafana.json"));

is(verdict($dashboard), '', 'the dashboard is one of the schema');

# It would notice
my $wrong = decode_json(encode_json($dashboard));
$wrong->{panels}[1]{options}{colorMode} = 'rainbow';
like(
	verdict($wrong),
	qr/Type '"rainbow"' is not assignable/,
	'a word that Grafana does not know is noticed');
$wrong = decode_json(encode_json($dashboard));
$wrong->{panels}[1]{fieldConfig}{defaults}{units} = 's';
like(verdict($wrong), qr/'"units"' does not exist/, 'and a field');
$wrong = decode_json(encode_json($dashboard));
delete $wrong->{panels}[1]{gridPos}{w};
like(verdict($wrong), qr/Property '"?w'?"? is missing/, 'and one that is missing');

# The fields of Prometheus are not in that package
my %of_prometheus = map { $_ => 1 } qw(refId datasource expr legendFormat format instant);
is( join(' ',
		grep { !$of_prometheus{$_} }
		map { keys %$_ } map { @{ $_->{targets} // [] } } @{ $dashboard->{panels} }),
	'',
	'the questions have fields that Prometheus has');
done_testing();

# What the compiler says of a dashboard
sub verdict
{
	my ($of) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/dashboard.ts", program(decode_json(encode_json($of))));
	return
	  qx{cd '$dir' && node '$modules/typescript/bin/tsc' --noEmit --strict --skipLibCheck dashboard.ts 2>&1};
}

# Its parts, each as a constant of its type.  An enumeration is given as the word that it stands for.
sub program
{
	my ($all) = @_;
	my ($count, $text) = (0, <<"EOT");
import type { Dashboard, Panel, RowPanel, VariableModel, AnnotationQuery } from '$types/dashboard/x/types.gen';
import type { DataQuery } from '$modules/\@grafana/schema/dist/types/common/common.gen';
import type * as stat from '$types/composable/stat/panelcfg/x/types.gen';
import type * as table from '$types/composable/table/panelcfg/x/types.gen';
import type * as timeseries from '$types/composable/timeseries/panelcfg/x/types.gen';

type Plain<T> = T extends string ? `\${T}` : T extends number | boolean | null | undefined ? T
	: T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
EOT
	my $constant = sub {
		my ($type, $value) = @_;

		$count++;
		$text .= "export const c$count: Plain<$type> = " . $json->encode($value) . ";\n";
	};

	foreach my $annotation (@{ delete($all->{annotations})->{list} })
	{
		delete @$annotation{qw(expr titleFormat textFormat step)};    # of Prometheus
		$constant->('AnnotationQuery', $annotation);
	}
	$constant->('VariableModel', $_) foreach @{ delete($all->{templating})->{list} };
	foreach my $panel (@{ delete $all->{panels} })
	{
		if ($panel->{type} eq 'row')
		{
			$constant->('RowPanel', $panel);
			next;
		}
		$constant->("Partial<$panel->{type}.Options>", delete $panel->{options});
		my $custom = delete $panel->{fieldConfig}{defaults}{custom};
		$constant->("Partial<$panel->{type}.FieldConfig>", $custom) if $custom;
		foreach my $target (@{ delete $panel->{targets} })
		{
			$constant->('DataQuery', { map { $_ => $target->{$_} } qw(refId datasource) });
		}
		$constant->("Omit<Panel, 'options' | 'targets'>", $panel);
	}
	$constant->("Omit<Dashboard, 'panels' | 'templating' | 'annotations'>", $all);
	return $text;
}
