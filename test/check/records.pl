#!/usr/bin/perl
# test/torture/records.py adds up what campaigns came to, and test/torture/long.py runs them in pieces, as TAP.

use strict;
use warnings;

use File::Temp;
use FindBin;
use JSON::PP;
use Test::More;

my $torture = "$FindBin::RealBin/../torture";
my $python = $ENV{PYTHON} // 'python3';
my $directory = File::Temp->newdir;
my $count = 0;

sub slurp
{
	my ($name) = @_;

	open my $fh, '<', $name or die "could not open \"$name\": $!";
	local $/;
	return <$fh> // '';
}

sub spew
{
	my ($name, $text) = @_;

	open my $fh, '>', $name or die "could not write \"$name\": $!";
	print $fh $text;
	close $fh or die;
	return;
}

# A record that differs from a plain one in these fields
sub add_record
{
	my (%fields) = @_;
	my $name = sprintf '%s/%03d.json', $directory, ++$count;

	spew(
		$name,
		encode_json(
			{
				record => 1,
				campaign => 'torture',
				commit => 'abc',
				code => '123',
				server => '15.1',
				began => sprintf('2026-01-%02dT00:00:00+00:00', $count),
				seconds => 1800,
				seed => $count,
				minutes => 30,
				ids => 1000,
				duplicates => 0,
				disorder => 0,
				interrupted => JSON::PP::false,
				failed => [],
				faults => {},
				%fields
			})
		  . "\n");
	return $name;
}

# The exit status, the standard output, and what is said to be wrong
sub sums
{
	my $out = qx{$python '$torture/records.py' @_ 2>'$directory/err'};

	return ($? >> 8, $out, slurp("$directory/err"));
}

add_record(faults => { crash => [ [ 0.1, 1 ], [ 0.3, 2 ] ], freeze => [ [ undef, 4 ] ] });
add_record(seconds => 900, ids => 234, faults => { crash => [ [ 12, 3 ] ] });
add_record(
	campaign => 'frontier',
	seed => 7,
	commit => 'def',
	interrupted => JSON::PP::true,
	failed => ['interrupted']);

my ($status, $out, $wrong) = sums($directory);

is($status, 0, 'records without a violation');
is($wrong, '', 'nothing is said to be wrong, not of one that was told to end either');
is($out, <<'EOT', 'the tables');
| campaign | runs | seeds | hours | faults | IDs | twice | out of order |
| --- | --- | --- | --- | --- | --- | --- | --- |
| frontier | 1 | 7 | 0.5 | 0 | 1,000 | 0 | 0 |
| torture | 2 | 1-2 | 0.8 | 4 | 1,234 | 0 | 0 |
| **all** | 3 |  | 1.2 | 4 | 2,234 | 0 | 0 |

| digest of the code | PostgreSQL | from | to | runs | hours | IDs |
| --- | --- | --- | --- | --- | --- | --- |
| `123` | 15.1 | 2026-01-01 | 2026-01-03 | 3 | 1.2 | 2,234 |

| campaign | fault | times | next ID: p50 | worst | no ID: p50 | worst |
| --- | --- | --- | --- | --- | --- | --- |
| torture | crash | 3 | 300 ms | 12 s | 2.00 s | 3.00 s |
| torture | freeze | 1 |  |  | 4.00 s | 4.00 s |
EOT

my $page = "$directory/page.md";
my $begin = '<!-- records.py: begin -->';
my $end = '<!-- records.py: end -->';

spew($page, "before\n$begin\nold\n$end\nafter\n");
is((sums('--page', $page, $directory))[0], 0, 'tables are put into a page');
is(slurp($page), "before\n$begin\n\n$out\n$end\nafter\n", 'in place of those that were there');
my $once = slurp($page);
sums('--page', $page, $directory);
is(slurp($page), $once, 'twice is as good as once');
spew($page, "before\n");
is_deeply(
	[ (sums('--page', $page, $directory))[ 0, 2 ] ],
	[ 2, "records.py: $page: $begin and $end have to be there once each, in this order\n" ],
	'a page without a place for them');
is(slurp($page), "before\n", 'is left alone');

# One file of many records
my $all = "$directory/all.jsonl";
is((sums('--add', $all, "$directory/001.json", "$directory/003.json"))[0],
	0, 'records are put into one file');
is((sums('--add', $all, $directory))[0], 0, 'and others are added');
is(slurp($all), join('', map { slurp("$directory/00$_.json") } 1, 3, 2), 'each once');
is((sums($all))[1], $out, 'their sums are the same');

my $twice = add_record(duplicates => 1, interrupted => JSON::PP::true);
($status, $out, $wrong) = sums($directory);
is($status, 1, 'an ID that came twice fails, even in a run that was told to end');
is($wrong, "$twice: torture, seed 4: 1 twice, 0 out of order\n", 'and is named');
like($out, qr/^\| \*\*all\*\* .*\| 1 \| 0 \|$/m, 'and counted');
like($out, qr/^Failed:\n\n- \Q$twice\E/m, 'also on the page');
unlink $twice;
my $disorder = add_record(disorder => 2);
is((sums($directory))[0], 1, 'an ID that is out of order fails');
unlink $disorder;
my $broken = add_record(failed => ['BROKEN OFF: no ID']);
like(
	(sums($directory))[2],
	qr/seed 6: BROKEN OFF: no ID$/,
	'so does a campaign that did not go through');
unlink $broken;

my $again = "$directory/again.json";
spew($again, slurp("$directory/001.json"));
like((sums($directory))[2], qr/are of one run$/, 'a run counts once');
unlink $again;
foreach (
	[ '{', 'Expecting property name' ],
	[ '[]', 'not a record of the form 1' ],
	[ '{"record": 2}', 'not a record of the form 1' ])
{
	spew($again, $_->[0]);
	is_deeply(
		[ (sums($directory))[0], (sums($directory))[2] =~ /\Q$_->[1]\E/ ],
		[ 2, 1 ],
		"$_->[0] is no record");
}
is((sums(File::Temp->newdir))[0], 2, 'no record is no result');

# A fleet's faults are the same with each coordinator.
spew($again,
	slurp(add_record(campaign => 'fleet etcd', faults => { pause => [ [ 0.2, undef ] ] })));
like((sums($again))[1], qr/^\| fleet \| pause \| 1 \| 200 ms \|/m, 'the faults of a fleet');
like((sums($again))[1], qr/^\| fleet etcd \| 1 \|/m, 'and its runs with a coordinator');

# What is published is what is kept.
spew($page, slurp("$torture/../../doc/promises.md"));
is((sums('--page', $page, "$torture/records.jsonl"))[2], '', 'no run that is kept has failed');
is(slurp($page), slurp("$torture/../../doc/promises.md"), 'the page has the sums of those');

# The pieces, of a test/run.sh that writes what it is asked for
my $tree = File::Temp->newdir;
my $records = "$tree/records";

mkdir "$tree/$_" foreach qw(test test/torture);
foreach my $name (qw(long.py record.py records.py))
{
	spew("$tree/test/torture/$name", slurp("$torture/$name"));
}
spew("$tree/test/run.sh", <<'EOT');
arguments="$*"
echo "$arguments" >>arguments
for _ in {1..400}; do [ "$(wc -l <arguments)" -lt "$TOGETHER" ] || break; sleep 0.05; done
[[ $arguments != *"--seed $DIES "* ]] || exit 3
cat >"${arguments##* }" <<END
{"record": 1, "campaign": "$1", "commit": "a", "code": "b", "server": "15", "began": "$(date +%s.%N)", "seconds": 1, "seed": 1, "minutes": 1, "ids": 10, "duplicates": 0, "disorder": 0, "interrupted": false, "failed": [], "faults": {}}
END
EOT

sub pieces
{
	my $out = qx{cd '$tree' && $python test/torture/long.py --records '$records' @_ 2>&1};

	return ($? >> 8, $out);
}

@ENV{qw(DIES TOGETHER)} = ('none', 0);
($status, $out) = pieces('--seed', 5, '--ids', 120, '--rate', 99);
is($status, 0, 'pieces until there are as many IDs') or diag($out);
like($out, qr/^all that was asked for is reached: 12 records/m, 'and no more');
my @arguments = map { s/ --record .*//r } split /\n/, slurp("$tree/arguments");
is_deeply(
	[ @arguments[ 0 .. 2, 5 ] ],
	[
		'torture --minutes 30 --rate 99 --seed 5',
		'fleet --coordinator etcd --minutes 15 --seed 6',
		'torture tail --minutes 10 --seed 7',
		'patroni --faults 20 --seed 10'
	],
	'each is a campaign with a seed of its own');
$ENV{DIES} = 18;
($status, $out) = pieces('--ids', 140, '--minutes', 2, '--only', 'torture');
like(
	$out,
	qr/^  FAILED: .*seed 18: it ended with status 3, without a record$/m,
	'one that dies is told');
is($status, 1, 'and fails the whole');
is(scalar(() = glob "$records/*.json"), 15, 'it is in the records, and the next seed follows');
unlink "$tree/arguments";

# None ends before three have begun, and the first that ends is enough.
$ENV{TOGETHER} = 3;
($status, $out) = pieces('--ids', 150, '--lanes', 3);
is(scalar(() = glob "$records/*.json"), 18, 'three at once') or diag($out);
is(join(' ', sort map { /--seed (\d+)/ } slurp("$tree/arguments") =~ /.+/g),
	'20 21 22', 'have three seeds');
spew("$records/stop", '');
like((pieces('--hours', 1))[1], qr/^told to end: 18 records/m, 'a file ends it');

done_testing();
