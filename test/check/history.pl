#!/usr/bin/perl
# test/torture/check.py finds what is wrong with a recorded history, and nothing else, as TAP.

use strict;
use warnings;

use File::Temp;
use FindBin;
use Test::More;

my $directory = File::Temp->newdir;
my $python = $ENV{PYTHON} // 'python3';

# What the checker says of these lines: its exit status, and what it finds
sub verdict_on
{
	my ($head, @lines) = @_;
	my $file = "$directory/history";

	open my $out, '>', $file or die "could not write \"$file\": $!";
	print $out map { tr/ /\t/r . "\n" } @lines;
	close $out or die;
	my $text = do { local $/; open my $in, '<', $file or die; <$in> };
	open $out, '>', $file or die;
	print $out "$head\n$text";
	close $out or die;
	my $said = qx{$python '$FindBin::RealBin/../torture/check.py' '$file'};
	my $status = $? >> 8;

	return join ', ', $status, map { s{.*history[,:] }{}r } $said =~ /^not ok - (.*)$/mg;
}

my $head = '# snowflake history 1';
my @good = (
	'a 1 100 200 5',
	'a 1 100 200 6',
	'a 2 150 250 4',
	'a 1 260 300 7',
	'! crash 300 400',
	'a 1 410 450 9',
	'b 3 500 600 1');

is(verdict_on($head, @good), '0', 'nothing is wrong with a good history');
is( verdict_on($head, @good, 'b 4 700 800 7'),
	'1, 1 IDs that came twice 7',
	'an ID that came twice in two lines');
is( verdict_on($head, @good, 'a 1 410 450 8'),
	'1, 1 IDs out of order in a session 8',
	'a smaller ID within a call');
is( verdict_on($head, @good, 'a 5 700 800 8'),
	'1, 1 calls out of order in a line 8',
	'a smaller ID in a later call of another session');
is(verdict_on($head, @good, 'a 5 450 800 8'),
	'0', 'but not if the call began before the other one ended');
is(verdict_on($head, @good, "a 5 700 800 $_"), '1, 1 numbers that are no IDs None', "$_ is no ID")
  foreach -8, '9223372036854775808';
is(verdict_on($head), '1, 1 histories without an ID ' . "$directory/history", 'no ID at all');
like(verdict_on('', @good), qr/^1, .*the first line is not/, 'not a history');
like(verdict_on($head, 'a 1 100 5'), qr/^1, line 2: not enough values/, 'a line that is cut off');
like(
	verdict_on($head, 'a 1 200 100 5'),
	qr/^1, line 2: it was got before/,
	'a clock that went back');

done_testing();
