# What README.md and the pages of doc say works: each SQL statement runs without an
# error, in the order of the page; so do the lines for a shell, for cron and for a
# configuration file, unless a reason is given below; and each link leads somewhere.
#
# A comment above a block, which readers do not see, says what this test needs:
#
#   <!-- given: SQL -->             what the reader is supposed to have
#   <!-- restart -->                the text above told to restart the server
#   <!-- later -->                  it runs after the block that says "restart"
#   <!-- fails: SQLSTATE -->        with what the server refuses it
#   <!-- not run here: reason -->
#   <!-- run by FILE [FILE] -->     the whole page, by another test
#   <!-- conf: LINE -->             a setting of the whole page's server
#   <!-- needs snowflake_public --> a whole page that a build without it cannot run

use SnowflakeTest;

my @pages = ('README.md', sort glob('doc/{*,clients/*}.md'));
my %text = map { $_ => slurp_file($_) } @pages;
my %server;

cmp_ok(scalar(() = $text{'README.md'} =~ /\S+/g), '<=', 1000, 'README.md is short');

# A server of that name, which is started when it is first asked for.
sub server
{
	my ($name, $conf, %params) = @_;

	return $server{$name} //= do
	{
		# the setting is for machines under load
		my $node =
		  new_node($name, conf => "snowflake.max_wait = '1min'\n" . ($conf // ''), %params);

		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION snowflake') if !exists $params{preload};
		$node;
	};
}

# Run the blocks of a page, in a database of its own, or on a server of its own if the page has settings
# or restarts it.  The first statement that fails fails the page.
sub runs
{
	my ($page, %params) = @_;
	my ($name) = $page =~ /(\w+)\.md$/;
	my ($conf) = $text{$page} =~ /^<!-- conf: (.*?) -->$/m;

  SKIP:
	{
		skip 'there is no snowflake_public', 1
		  if $text{$page} =~ /^<!-- needs snowflake_public -->$/m && !has_public();
		if (defined $conf || $text{$page} =~ /^<!-- restart -->$/m)
		{
			my $node = server($name, $conf, %params);

			run_blocks($page, $node, 'postgres');
			$node->stop;
		}
		else
		{
			server('shared')->safe_psql('postgres', "CREATE DATABASE $name");
			server('shared')->safe_psql($name, 'CREATE EXTENSION snowflake');
			run_blocks($page, server('shared'), $name);
		}
	}
	return;
}

sub run_blocks
{
	my ($page, $node, $dbname) = @_;
	my ($blocks, @now, @later) = (0);

	while ($text{$page} =~ /^((?:<!-- (?:(?!-->).)*-->\n)*)```sql\n(.*?)^```$/msg)
	{
		my ($marks, $sql) = ($1, $2);

		next if $marks =~ /<!-- not run here: /;
		push @{ $marks =~ /<!-- later -->/ ? \@later : \@now }, [ $marks, $sql ];
		push @now, splice @later if $marks =~ /<!-- restart -->/;
	}
	foreach my $block (@now, @later)
	{
		my ($marks, $sql) = @$block;

		$sql = "$1\n$sql" if $marks =~ /<!-- given: (.*?) -->/s;
		$node->restart if $marks =~ /<!-- restart -->/;
		my ($sqlstate) = $marks =~ /<!-- fails: (\w+) -->/;
		my ($status, $output, $error) =
		  $node->psql($dbname, $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		if (defined $sqlstate ? $error !~ /ERROR:  $sqlstate:/ : $status != 0)
		{
			diag("$error\nin\n$sql");
			$blocks = 0;
			last;
		}
		is(join("\n", grep { index($text{$page}, "\n $_\n") < 0 } split /\n/, $output),
			'', "$page: it has that plan")
		  if $sql =~ /\AEXPLAIN [^;]*;\Z/;
		$blocks++;
	}
	cmp_ok($blocks, '>', 0, "$page: statements run");
	return;
}

# The reader of README.md starts with a server that has nothing but the node ID.
runs('README.md', preload => 0);
my $demo = slurp_file('test/demo.sql');
is( join('',
		grep { index($demo, $_) < 0 }
		  $text{'README.md'} =~ /^<!-- later -->\n```sql\n(.*?)^```$/msg),
	'',
	'test/demo.sql shows the session of README.md');

foreach my $page (grep { !m{^README|^doc/clients} && $text{$_} =~ /^```sql$/m } @pages)
{
	if ($text{$page} =~ /^<!-- run by (.*) -->$/m)
	{
		my @silent =
		  grep { !-e $_ || slurp_file($_) !~ /\Q$page\E/ }
		  split ' ', $1;

		is("@silent", '', "$page: is run by another test");
	}
	else
	{
		runs($page);
	}
}

# Blocks of something else than SQL.  The page, what matches the whole block, and what runs it,
# with the page and the block; or why it is not run here, which is the test that runs it if there is
# one.  A block that is not in this list fails.
my $pkglibdir = (run_command([ 'pg_config', '--pkglibdir' ]))[0];
my @blocks = (
	[ 'README.md', qr/^[ ─-┼|+-]*\bid\b.*\|/, 'a result' ],
	[ 'README.md', qr/^ Limit\n   ->  Index Scan Backward/, 'a plan, which is compared above' ],
	[
		'README.md', qr/^(?:sudo apt-get install|sudo pg_conftool|sudo -u postgres|sudo service)/,
		'test/newcomer.pl'
	],
	[ 'README.md', qr/^docker build /, 'test/image.pl' ],
	[ qr{^doc/(?:design|tailing)\.md$}, qr/──>|───▶/, 'a drawing' ],
	[ 'doc/fleet.md', qr/^consul acl /, 'test/t/512_consul.pl' ],
	[ 'doc/fleet.md', qr/^scope: |^PATRONI_/, 'test/campaign/patroni.py' ],
	[ 'doc/migrating.md', qr/^pg_dump .*pg_restore/s, 'test/t/604_generators.pl' ],
	[ 'doc/clock.md', qr/^SELECT snowflake_restart_at_clock/m, 'test/t/041_restart_at_clock.pl' ],
	[
		'doc/clock.md',
		qr/^makestep .*\nleapsecmode /,
		'it is for chronyd, which sets the clock of the machine'
	],
	[ 'doc/partitions.md', qr/^[\d*].*psql/, \&runs_by_cron ],
	[ 'doc/promises.md', qr/^bash test\/run\.sh torture .*--history/, 'test/campaign/campaign.py' ],
	[ 'doc/public.md', qr/^sudo install/, \&makes_keys ],
	[ 'doc/reference.md', qr/^(?:twitter|\w+:\d+)/, \&are_layouts ],
	[ 'doc/running.md', qr/^psql -f monitoring\/status\.sql/, 'test/t/052_monitoring.pl' ],
	[ 'doc/running.md', qr/^ALTER SYSTEM SET shared_preload_libraries = '/, \&keeps_from_starting ],
	[ 'doc/running.md', qr/^echo .*postgresql\.auto\.conf/, \&stops_a_copy ],
	[
		'doc/running.md', qr/^(?:extension_control_path|make install datadir=)/,
		'test/t/900_installed.pl'
	],
	[
		'doc/tailing.md', qr/^mode=incrementing/,
		'it needs Kafka Connect: test/t/410_consumers.pl has its statements'
	],
	[ 'doc/tools.md', qr/^shared_preload_libraries = 'citus, snowflake'$/m, 'it needs Citus' ],
	[ qr/./, qr/^(?:(?:#?[\w.]+ = \S.*\n)+)$/, \&is_taken ]);

foreach my $page (grep { !m{^doc/clients} } @pages)
{
	my @texts;

	while ($text{$page} =~ /^```(\w*)\n(.*?)^```$/msg)
	{
		push @texts, $2 if $1 ne 'sql';
	}
	push @texts,
	  map { s/^ {4}//mgr }
	  $text{$page} =~ s/^```.*?^```$//msgr =~ /(?<=^\n)((?: {4}\S.*\n(?: {4}.*\n)*))/mg;
	foreach my $block (@texts)
	{
		my ($line) = $block =~ /^(.*)$/m;
		my ($how) = map { $_->[2] }
		  grep { (ref $_->[0] ? $page =~ $_->[0] : $page eq $_->[0]) && $block =~ $_->[1] } @blocks;

		if (ref $how)
		{
			$how->($page, $block);
		}
		else
		{
			ok( defined $how && ($how !~ m,^(test/\S+)$, || -e $1),
				"$page: " . ($how // 'nothing runs') . ": $line");
		}
	}
}

# By the shell that it is for, at home in the root of the tree, with a server in its environment.
# No one may be root here.
sub shell
{
	my ($shell, $script, $node) = @_;
	my %env =
	  $node ? (PGHOST => $node->host, PGPORT => $node->port, PGDATA => $node->data_dir) : ();
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/sudo", "#!/bin/sh\nexec \"\$@\"\n");
	chmod 0755, "$dir/sudo" or die "chmod: $!";
	local %ENV = (%ENV, %env, PATH => "$dir:$ENV{PATH}");
	my ($stdout, $stderr) = ('', '');
	IPC::Run::run([ $shell, '-c', $script ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($? >> 8, $stdout, $stderr);
}

# Each line of a crontab, by what cron would run it with: 315_partitions.pl has what it does.
sub runs_by_cron
{
	my ($page, $block) = @_;
	my $node = server('shared');

	$node->safe_psql('postgres', $_) foreach 'DROP DATABASE IF EXISTS app', 'CREATE DATABASE app';
	$node->safe_psql(
		'app', q{
		CREATE EXTENSION snowflake_partitions CASCADE;
		CREATE TABLE log (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
		INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('log', 'month', 'UTC')}
	);
	foreach my $line (split /\n/, $block)
	{
		my ($command) = $line =~ /^(?:[\d*\/,-]+ +){5}(\S.*)$/;

		ok(defined $command && $command !~ /(?<!\\)%/, "$page: it is a line of a crontab: $line");
		my ($status, $stdout, $stderr) = shell('/bin/sh', $command, $node);
		is("$status$stdout$stderr", '0', 'that says nothing');
	}
	return;
}

sub keeps_from_starting
{
	my ($page, $block) = @_;
	my $node = server('changed');

	$node->safe_psql('postgres', $block);
	$node->stop;
	is($node->start(fail_ok => 1), 0, "$page: the server does not start after $block");
	$node->append_conf('postgresql.auto.conf', "shared_preload_libraries = 'snowflake'");
	my ($says) = $text{$page} =~ /^`(could not access file [^`]*)` after$/m;
	like(slurp_file($node->logfile), qr/\Q$says\E/, 'and says what the page says');
	$node->start;
	return;
}

sub stops_a_copy
{
	my ($page, $block) = @_;
	my $node = server('changed');

	$node->stop;
	my ($status, undef, $stderr) = shell('sh', $block, $node);

	is("$status$stderr", '0', "$page: $block");
	$node->start;
	is($node->safe_psql('postgres', 'SHOW snowflake.node_id'), '-1', 'the copy has no node ID');
	return;
}

sub makes_keys
{
	my ($page, $block) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

  SKIP:
	{
		skip 'the page is for the user postgres', 3 if getpwuid($>) ne 'postgres';
		my ($status, $stdout, $stderr) = shell('bash', $block =~ s,/etc/postgresql,$dir,gr);
		is("$status$stdout$stderr", '0', "$page: the file of keys is made");
		like(slurp_file("$dir/snowflake.keys"), qr/\A1 [0-9a-f]{64}\n\z/, 'with a key');
		is((stat "$dir/snowflake.keys")[2] & 0777, 0600, 'for its owner alone');
	}
	return;
}

sub are_layouts
{
	my ($page, $block) = @_;

	server('shared')->safe_psql('postgres', "SELECT snowflake_lower_bound('2026-01-01Z', '$_')")
	  foreach split /\n/, $block;
	pass("$page: these are layouts");
	return;
}

# Lines of postgresql.conf.  A coordinator that is not there keeps nobody from starting.
sub is_taken
{
	my ($page, $block) = @_;
	my ($module) = $block =~ /node_source = '(consul|etcd)/;

  SKIP:
	{
		skip "there is no module $module", 1 if $module && !-e "$pkglibdir/snowflake_$module.so";
		my $node = server('changed');
		my %set = $block =~ /^([\w.]+) = '?(.*?)'?$/mg;

		$node->append_conf('postgresql.conf', $block);
		$node->restart;
		is(query($node, "SELECT current_setting('$_')"), $set{$_}, "$page: $_ = $set{$_}")
		  foreach sort keys %set;
	}
	return;
}

# The programs of test/clients have the lines that the pages of clients show, so that these are compiled
# and run: their order and surroundings are for the reader.
my $programs = join '', map { slurp_file($_) } grep { -f } glob 'test/clients/*';
$programs =~ s/\s//g;
foreach my $page (grep { m{^doc/clients} } @pages)
{
	my @missing;

	foreach my $line (grep { !/…/ } map { split /\n/ } $text{$page} =~ /^```\w+\n(.*?)^```$/msg)
	{
		my $code = $line =~ s,\s+(?://|\#|--) .*,,r;

		$code =~ s/^(?:#|--) .*|\s//g;
		push @missing, $line if index($programs, $code) < 0;
	}
	is(join("\n", @missing), '', "$page: test/clients runs what it shows");
}

# A heading's anchor, as GitHub and others make it
sub anchor
{
	my ($heading) = @_;

	$heading =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
	$heading = lc $heading;
	$heading =~ s/[^\w\- ]//g;
	$heading =~ s/ /-/g;
	return $heading;
}

my @dead;
foreach my $page (
	@pages,
	glob(
		'{CHANGELOG,CONTRIBUTING,SECURITY,test/README}.md test/*/README.md monitoring/alerts.yaml'))
{
	my $text = $text{$page} // slurp_file($page);
	my ($directory) = $page =~ m,^(.*/|),;

	$text =~ s/^```.*?^```$//msg;
	foreach my $link (
		$text =~ /\]\(([^)\s]+)\)/g,
		$text =~ /\bsrc(?:set)?="([^"]+)"/g,
		map { "../$_" } $text =~ /^ +runbook: (\S+)$/mg)
	{
		next if $link =~ /^\w+:/;
		my ($path, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;
		my $file = $path eq '' ? $page : "$directory$path";

		push @dead, "$page: $link"
		  if !-e $file
		  || defined $anchor && !grep { anchor($_) eq $anchor }
		  (slurp_file($file) =~ s/^```.*?^```$//msgr) =~ /^#+ +(.*?) *$/mg;
	}
}
is(join("\n", @dead), '', 'links lead somewhere');

done_testing();
