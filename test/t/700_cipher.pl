# FF1, the encryption behind snowflake_public(), without a server: NIST's samples,
# and that what is encrypted is a permutation which decryption undoes.

use SnowflakeTest;

my $program = PostgreSQL::Test::Utils::tempdir() . '/ff1';
my ($include) = run_command([ 'pg_config', '--includedir-server' ]);
my @cc = ($ENV{CC} || 'cc', '-O2', '-Wall', '-Werror');

plan skip_all => 'there is no header of OpenSSL'
  if system("@cc -include openssl/evp.h -E -x c /dev/null >/dev/null 2>&1") != 0;

system_or_bail(@cc, "-I$include", '-Isrc',
	'-o', $program, 'test/cipher/ff1.c', 'src/public/cipher.c', '-lcrypto');

my ($output, $errors) = run_command([$program]);
my @lines = split /\n/, $output;
my ($planned) = $output =~ /^1\.\.(\d+)$/m;
my @results = grep { /^(?:not )?ok \d+ - / } @lines;

is($errors, '', 'the program reports no error');
is(scalar @results, $planned, 'the program has come to its end');
foreach my $result (@results)
{
	my ($success, $name) = $result =~ /^(not )?ok \d+ - (.*)$/;

	ok(!defined $success, $name);
}
note(grep { /^#/ } @lines);

done_testing();
