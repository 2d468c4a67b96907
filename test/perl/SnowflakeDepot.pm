# An application that is migrated, for the tests of snowflake_migrate.  test/migrate has its schema and data,
# what it does, what has to be changed in it for large keys, and a listing of its catalogs.

package SnowflakeDepot;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use SnowflakeTest ();

our @EXPORT =
  qw(build catalog conf contents difference load_depot new_depot run_file unexplained widened);

my $directory = 'test/migrate';

# Columns that hold keys and have no foreign key: what the plan names, less two that are none.
sub widened
{
	return
		'{app.audit_log.actor,app.audit_log.row_id,app.categories.path,app.closings.order_id,'
	  . 'app.comments.mentions,app.comments.subject_id,app.orders_history.changed_by,app.orders_history.customer_id,'
	  . 'app.orders_history.id,app.products.related_ids,app.subscriptions.product_id,app.taggings.subject_id}';
}

# What a server needs for it
sub conf
{
	return "wal_level = logical\nmax_locks_per_transaction = 512\ntimezone = 'UTC'";
}

# Run a file of test/migrate, with further options of psql; returns psql's standard output and
# error.
sub run_file
{
	my ($node, $dbname, $file, @options) = @_;
	my ($stdout, $stderr);

	local %ENV = $node->_get_env();
	IPC::Run::run(
		[
			$node->installed_command('psql'),
			'-XAtq', '-d', $node->connstr($dbname),
			@options, '-f', "$directory/$file"
		],
		'>',
		\$stdout,
		'2>',
		\$stderr);
	return ($stdout, $stderr);
}

# The application in a database of its own, named depot; new_depot() copies that.  With
# SNOWFLAKE_TEST_LONG=1 it has ten times as many rows, unless the size is given.
sub load_depot
{
	my ($node, $size) = @_;

	$size //= $ENV{SNOWFLAKE_TEST_LONG} ? 10 : 1;
	$node->safe_psql('postgres', 'CREATE DATABASE depot');
	my (undef, $stderr) = run_file($node, 'depot', 'depot.sql', '-v', "size=$size");
	die $stderr if $stderr ne '';
	$node->safe_psql('depot', 'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_migrate');
	return;
}

sub new_depot
{
	my ($node, $name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE depot");
	return $name;
}

# Rows, and how many there are of those that triggers and rules write
sub contents
{
	my ($node, $dbname) = @_;

	return SnowflakeTest::query(
		$node, q{SELECT
		(SELECT md5(string_agg((id, customer_id, address_id, sold_by, status, number)::text, ' ' ORDER BY id)) FROM app.orders),
		(SELECT md5(string_agg((id, order_id, line_no, product_id, price)::text, ' ' ORDER BY id)) FROM app.order_items),
		(SELECT md5(string_agg((id, order_id, customer_id, amount)::text, ' ' ORDER BY id)) FROM billing.invoices),
		(SELECT md5(string_agg((id, user_id, order_id, payload)::text, ' ' ORDER BY id)) FROM app.events),
		(SELECT md5(string_agg((tableoid::regclass, id, owner_id, title)::text, ' ' ORDER BY tableoid::regclass::text, id)) FROM app.documents),
		(SELECT md5(string_agg((product_id, sold, last_order)::text, ' ' ORDER BY product_id)) FROM app.sales_by_product),
		(SELECT count(*) FROM app.audit_log), (SELECT count(*) FROM app.orders_history), (SELECT count(*) FROM app.jobs),
		(SELECT count(*) FROM app.closings)}, dbname => $dbname);
}

# Run build()'s statements one by one, after others; returns their errors.
sub build
{
	my ($node, $dbname, $before) = @_;
	my $build = ($before // '') . 'SELECT snowflake_migrate.build() \gexec';

	return ($node->psql($dbname, $build, on_error_stop => 0))[2];
}

# The catalogs, a line for each fact; with further options of psql
sub catalog
{
	my ($node, $dbname, @options) = @_;
	my ($stdout, $stderr) = run_file($node, $dbname, 'catalog.sql', @options);

	die $stderr if $stderr ne '';
	return [ sort split /\n/, $stdout ];
}

# What has changed from one listing to another
sub difference
{
	my ($before, $after) = @_;
	my %facts;

	$facts{$_}-- foreach @$before;
	$facts{$_}++ foreach @$after;
	return join "\n",
	  map { ($facts{$_} > 0 ? '> ' : '< ') . $_ } sort grep { $facts{$_} } keys %facts;
}

# ... other than a key's type and default, the
# sequence that filled it, and how an expression of it is written.
sub unexplained
{
	my ($before, $after) = @_;
	my %kept = map { (split / \| /)[1] => 1 } grep { /^sequence \|/ } @$after;
	my @had = grep { !/^sequence \| ([^|]*)(?: \||$)/ || $1 =~ /work_seq|ticket_seq/ || $kept{$1} }
	  @$before;

	return difference([ map { normal($_) } @had ], [ map { normal($_) } @$after ]);
}

sub normal
{
	my ($line) = @_;
	my @field = split / \| ?/, $line, -1;

	if ($field[0] eq 'column')
	{
		$field[3] =~ s/\b(?:smallint|integer|bigint|snowflake)\b/ID/;
		($field[5], $field[7]) = ('', 'filled')
		  if $field[5] ne '' || $field[7] =~ /^(?:nextval|(?:public\.)?snowflake_next)\(/;
		$field[7] =~ s/^\(?'\{\}'::\w+\[\]\)?(?:::\w+\[\])?$/'{}'/;
	}
	my $fact = join ' | ', @field;
	$fact =~ s/\((\w+(?:\.\w+)?)\)::bigint/$1/g;
	$fact =~ s/\((\d+)\)::bigint/$1/g;
	$fact =~ s/::bigint//g;
	$fact =~ s/[()]//g;

	# a child's own NOT NULL is merged into its parent's, whose name it takes (from version 18 on)
	$fact =~ s/contracts_id_not_null/documents_id_not_null/;

	# extended statistics name their columns in the order of the table
	$fact =~ s/\bON (.*?) FROM/'ON ' . join(', ', sort split m{, }, $1) . ' FROM'/e
	  if $field[0] eq 'statistics';
	return $fact;
}

1;
