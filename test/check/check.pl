# Check the sources without running them in a server: cppcheck, clang-tidy,
# which has clang's static analyzer, that of gcc, indentation, perltidy, shellcheck.  One
# result for each.  What they find depends on their versions: this is clean with Debian 12's.
#
#   bash test/run.sh check
#   bash test/run.sh check --indent     indent src as pgindent would, in place
#   bash test/run.sh check --tidy       format Perl by .perltidyrc, in place
#   bash test/run.sh build              no warning, with either compiler
#
# What is suppressed is in .clang-tidy, test/check/cppcheck.txt and below, with
# its reason.

use strict;
use warnings;

use Cwd 'abs_path';
use File::Compare;
use File::Copy;
use File::Path 'make_path';
use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

my $root = abs_path("$FindBin::RealBin/../..");
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
my $work = File::Temp->newdir;

sub pg_config
{
	chomp(my $value = output_of($pg_config, @_));
	return $value;
}

# Builds from nothing, with these variables for make
sub build
{
	my $make = "make -s --no-print-directory 'PG_CONFIG=$pg_config' with_llvm=no";

	return "$make clean; $make " . join ' ', map { "'$_'" } @_;
}

# One of the compilers is that of the server, with which run.sh has just built without any
# warning.  The other one is not told of those that are about what only the former knows:
# options, and attributes in the server's headers.
sub check_build
{
	my ($servers_clang) =
	  output_of('cat', pg_config('--pgxs') =~ s,makefiles/pgxs.mk$,Makefile.global,r) =~
	  /^CLANG *= *(\S+)/m;
	my ($clang) = grep { system("command -v $_ >/dev/null") == 0 } $servers_clang // (), 'clang';
	my %command = (
		gcc => build('CC=gcc', 'COPT=-Werror'),
		clang => build(
			'CC=' . ($clang // 'clang'),
			'COPT=-Werror -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes'
		));

	foreach my $name (qw(gcc clang))
	{
		program_ok("no warnings of $name",
			index(pg_config('--cc'), $name) >= 0 ? 'true' : $command{$name});
	}
	return;
}

# A copy of src as it should be, beside it: as pgindent leaves it, as far as this code
# needs that.  The types are those that the objects know of, for which a build without
# optimization is enough.  "text" is left out: as the name of a variable it would be taken for the type.
sub indent
{
	my $found = 0;
	my %is_type;

	foreach (split /\n/, output_of('objdump -Wi src/*.o src/*/*.o 2>/dev/null; cat typedefs.list'))
	{
		$is_type{$1} = 1 if /^(\w+)$/ || ($found && /DW_AT_name.* (\S+)$/);
		$found = /DW_TAG_typedef/ || ($found && !/DW_AT_name/);
	}
	delete $is_type{text};
	open my $types, '>', "$work/typedefs" or die;
	print $types map { "$_\n" } sort keys %is_type;
	close $types or die;
	make_path(map { "indented/$_" } glob 'src src/*/');
	foreach my $file (glob 'src/*.[ch] src/*/*.[ch]')
	{
		system(
			'pg_bsd_indent -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -l79 -lp -lpl -nip -npro'
			  . " -sac -tpg -ts4 -U'$work/typedefs' $file indented/$file") == 0
		  or die "pg_bsd_indent failed";
		system('sed', '-i', '-E',
			's/^([A-Za-z_][^[:space:]]*)[[:blank:]]+\*$/\1 */; s/\(text \* /(text */',
			"indented/$file");
	}
	return;
}

# Copies of all Perl files as .perltidyrc has them, beside them.  Returns the files that are
# not so.
sub tidy
{
	my @files = split /\n/, output_of(q{find . -name '*.p[lm]' -printf '%P\n' | sort});

	# by one process: it takes longer to start than to format a file
	system('perltidy', '-pro=.perltidyrc', @files) == 0 or die "perltidy failed\n";
	return grep { compare($_, "$_.tdy") } @files;
}

system('cp', '-a', $root, "$work/tree") == 0 or die;
chdir "$work/tree" or die;
END { chdir '/' }

# Put files of the copy into the checkout, in place of others.
sub write_back
{
	my (%copy_of) = @_;
	my $checkout = $ENV{SNOWFLAKE_CHECKOUT} // $root;

	foreach my $file (grep { compare($_, $copy_of{$_}) } sort keys %copy_of)
	{
		copy($copy_of{$file}, "$checkout/$file") or die "could not write \"$checkout/$file\": $!";
	}
	return;
}

my $include = pg_config('--includedir-server');
my @defines = ('-DSNOWFLAKE_VERSION=""', '-Isrc', "-I$include");
my %part = (
	'--build' => \&check_build,
	'--indent' => sub {
		program_ok('built with what debuggers need', build('COPT=-g -O0'));
		indent();
		write_back(map { $_ => "indented/$_" } glob 'src/*.[ch] src/*/*.[ch]');
	},
	'--tidy' => sub {
		write_back(map { $_ => "$_.tdy" } tidy());
		pass('Perl is tidy');
	},
	cppcheck => sub {
		silent_ok(
			'cppcheck',
			'cppcheck',
			'--quiet',
			'--error-exitcode=1',
			'--std=c99',
			'--max-configs=1',
			'--enable=warning,style,performance,portability',
			'--suppressions-list=test/check/cppcheck.txt',
			"--suppress=*:$include/*",
			'--suppress=unmatchedSuppression',
			'-D__GNUC__=12',
			'-D__x86_64__',
			'-D__linux__',
			@defines,
			'src');
	},

	# it counts the warnings of the server's headers, which it does not show
	'clang-tidy' => sub {
		silent_ok('clang-tidy',
			"clang-tidy --quiet src/*.c src/*/*.c -- -D_GNU_SOURCE -I'${\ pg_config('--includedir')}' "
			  . join(' ', map { "'$_'" } @defines)
			  . " -Wno-ignored-attributes 2>'$work/log' || { cat '$work/log'; exit 1; }");
	},
	gcc => sub {
		silent_ok(
			"gcc -fanalyzer, and warnings that PostgreSQL's own flags leave out",
			build(
				'CC=gcc',
				'COPT=-fanalyzer -Wshadow=local -Wmissing-declarations -Wvla'
				  . ' -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wnull-dereference -Wwrite-strings -Werror'
			));
	},
	style => sub {
		program_ok('built with what debuggers need', build('COPT=-g -O0'));

		# What the files of src share has a name of its own.
		silent_ok(
			'shared symbols have our prefix',
			q{nm -g --defined-only src/*.o src/*/*.o | awk 'NF == 3 { print $3 }' |
			grep -vE '^(snowflake_|make_snowflake$|pg_finfo_|_PG_init$|Pg_magic_func$)' || true}
		);
	  SKIP:
		{
			skip 'there is no pg_bsd_indent', 1
			  if system('command -v pg_bsd_indent >/dev/null') != 0;
			indent();
			silent_ok('indentation', qw(diff -ru --exclude=*.o --exclude=*.bc src indented/src));
		}

		is(join(' ', tidy()), '', 'Perl is tidy');

		# -S warning: below that, shellcheck notes functions that only a trap calls,
		# lists of options that are meant to be split, and the like.  SC2192: an empty
		# value in an associative array is what is meant.
		silent_ok('shellcheck',
			'find . -name "*.sh" -exec shellcheck -x -P SCRIPTDIR -s bash -S warning -e SC2192 {} +'
		);
	});

foreach my $name (@ARGV ? @ARGV : grep { !/^--/ } sort keys %part)
{
	die "there is no check \"$name\"\n" if !$part{$name};
	$part{$name}->();
}
done_testing();
