# Coordinators of fleets, and what is none.  Each is started on loopback, in a temporary directory, and
# stopped by its own pid.

package SnowflakeCoordinator;

use strict;
use warnings;

use Exporter qw(import);
use HTTP::Tiny;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  answer_request consul_program consul_request etcdctl hosts kill_members message
  new_certificate new_consul new_doubtful_proxy new_etcd new_false new_false_http
  new_false_postgresql new_proxy new_relay new_silent new_zookeeper read_request release result
  start_members write_passfile zookeeper_error
);

my @running;
my $passfile;

# Run a program in the background, with its output in a file.
sub launch
{
	my ($log, @command) = @_;
	my $pid = fork();

	die "could not fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $log;
		open STDERR, '>&', \*STDOUT;
		exec @command or die "could not run $command[0]: $!";
	}
	push @running, $pid;
	return $pid;
}

END
{
	my $status = $?;

	kill 'KILL', @running;
	waitpid $_, 0 foreach @running;
	$? = $status;
}

# A cluster of so many members, none of which runs yet, each with so many free ports.  A function says
# whether one of them serves.
sub new_cluster
{
	my ($name, $members, $ports, $serves) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $free_port = \&PostgreSQL::Test::Cluster::get_free_port;

	return {
		serves => $serves,
		members => [
			map {
				{
					name => $_,
					dir => "$dir/$_",
					log => "$PostgreSQL::Test::Utils::log_path/$_.log",
					client => $free_port->(),
					ports => [ map { $free_port->() } 2 .. $ports ]
				}
			} map { "$name$_" } 1 .. $members
		]
	};
}

# A cluster of etcd, of so many members, which serves.  With a certificate, and its key, servers
# and clients have to have it.  Further parameters are arguments of each member.
sub new_etcd
{
	my ($name, $members, $certificate, $key, @arguments) = @_;
	my $self = new_cluster("etcd_$name", $members, 2, \&etcd_serves);

	$self->{scheme} = $certificate ? 'https' : 'http';
	if ($certificate)
	{
		push @arguments, "--cert-file=$certificate", "--key-file=$key", '--client-cert-auth',
		  "--trusted-ca-file=$certificate";
		$self->{tls} = [ "--cacert=$certificate", "--cert=$certificate", "--key=$key" ];
	}
	my $cluster = join ',',
	  map { "$_->{name}=http://127.0.0.1:$_->{ports}[0]" } @{ $self->{members} };
	foreach my $member (@{ $self->{members} })
	{
		my $client = "$self->{scheme}://127.0.0.1:$member->{client}";
		my $peer = "http://127.0.0.1:$member->{ports}[0]";

		$member->{command} = [
			'etcd', "--name=$member->{name}",
			"--data-dir=$member->{dir}", "--listen-client-urls=$client",
			"--advertise-client-urls=$client", "--listen-peer-urls=$peer",
			"--initial-advertise-peer-urls=$peer", "--initial-cluster=$cluster",
			@arguments
		];
	}
	start_members($self);
	return $self;
}

# Start all members that do not run, and wait until each serves.  One that was started again has
# what the others have only then: before, it may not be among those that are killed last.
sub start_members
{
	my ($self) = @_;

	foreach my $member (grep { !$_->{pid} } @{ $self->{members} })
	{
		$member->{pid} = launch($member->{log}, @{ $member->{command} });
	}
	foreach my $member (@{ $self->{members} })
	{
		wait_until("a member serves: see $member->{log}",
			sub { $self->{serves}->($self, $member) });
	}
	return;
}

# Kill one member, or all.
sub kill_members
{
	my ($self, @which) = @_;

	@which = 0 .. $#{ $self->{members} } unless @which;
	foreach my $member (grep { $_->{pid} } @{ $self->{members} }[@which])
	{
		my $pid = delete $member->{pid};

		kill 'KILL', $pid;
		waitpid $pid, 0;
		@running = grep { $_ != $pid } @running;
	}
	return;
}

# "host:port" of all members, with commas
sub hosts
{
	my ($self) = @_;

	return join ',', map { "127.0.0.1:$_->{client}" } @{ $self->{members} };
}

# Run etcdctl; returns what it prints, dies if it fails.
sub etcdctl
{
	my ($self, @arguments) = @_;

	local $ENV{ETCDCTL_API} = 3;
	my $output = '';
	my $endpoints = join ',', map { "$self->{scheme}://$_" } split /,/, hosts($self);
	run_log([ 'etcdctl', @{ $self->{tls} // [] }, '--endpoints', $endpoints, @arguments ],
		'>' => \$output)
	  or die "etcdctl @arguments failed";
	return $output;
}

# Run a function in a process of its own, with a socket that it listens to.  Returns its
# "host:port".
sub serve
{
	my ($function) = @_;
	my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp')
	  or die "could not listen: $!";
	my $pid = fork() // die "could not fork: $!";

	if ($pid == 0)
	{
		local $SIG{PIPE} = 'IGNORE';

		# whatever comes of it, this is not the process whose end stops the servers
		eval { $function->($listener); };
		POSIX::_exit(0);
	}
	push @running, $pid;
	return '127.0.0.1:' . $listener->sockport;
}

# What listens, and does not answer: its "host:port".
sub new_silent
{
	return serve(sub { sleep 1_000_000 });
}

# What is no coordinator, but answers as one to begin with.  A function serves one client, in
# a process of its own.  Returns its "host:port".
sub new_false
{
	my ($serve_client) = @_;

	return serve(
		sub {
			my ($listener) = @_;
			local $SIG{CHLD} = 'IGNORE';

			for (;;)
			{
				my $client = $listener->accept or next;

				if ((fork() // die "could not fork: $!") == 0)
				{
					$client->autoflush(1);
					eval { $serve_client->($client); };
					POSIX::_exit(0);
				}
				close $client;
			}
		});
}

# The head and the body of a request over HTTP, or nothing
sub read_request
{
	my ($client) = @_;
	my $head = '';

	$head .= <$client> // return while $head !~ /\r\n\r\n\z/;
	my ($length) = $head =~ /^content-length: (\d+)/im;
	read $client, my $body, $length // 0;
	return ($head, $body);
}

# Answer it; further lines are for the head.
sub answer_request
{
	my ($client, $status, $content, @head) = @_;

	print $client join "\r\n", "HTTP/1.1 $status Said", 'Content-Type: application/json',
	  'Content-Length: ' . length($content), 'Connection: close', @head, '', $content;
	return;
}

# What answers every request over HTTP with what is in a file.  Its
# status is in another one, with ".status" behind its name; there may be none.
sub new_false_http
{
	my ($file) = @_;

	return new_false(
		sub {
			my ($client) = @_;

			my @request = read_request($client) or return;

			answer_request($client, -e "$file.status" ? slurp_file("$file.status") : 200,
				slurp_file($file));
		});
}

# A proxy before the first member, which refuses the first transaction.  It does all
# others, and answers that it did not.  Returns its "host:port".
sub new_doubtful_proxy
{
	my ($self) = @_;
	my $target = "http://127.0.0.1:$self->{members}[0]{client}";
	my $began = PostgreSQL::Test::Utils::tempdir() . '/began';

	return new_false(
		sub {
			my ($client) = @_;
			my ($head, $body) = read_request($client) or return;
			my ($path) = $head =~ /^POST (\S+)/;
			my $is_first = $path =~ /txn/ && !-e $began;

			append_to_file($began, '') if $path =~ /txn/;
			return answer_request($client, 200, '{"header": {}, "succeeded": false}') if $is_first;
			my $answer = HTTP::Tiny->new(timeout => 5)->post("$target$path", { content => $body });
			return $path =~ /txn/
			  ? answer_request($client, 503, '{"message": "proposal timed out"}')
			  : answer_request($client, 200, $answer->{content});
		});
}

# A relay before the first member.  While there is a file, what matches an expression
# and comes from a client is held; then there is another file, with ".held" behind its
# name.  Who connects while there is a file with ".other" behind its name gets to the first
# member of another cluster.  Returns its "host:port".
sub new_relay
{
	my ($self, $regexp, $file, $other) = @_;

	return new_proxy(
		sub { return (-e "$file.other" ? $other : $self)->{members}[0]{client} },
		sub {
			my ($bytes, $is_of_client) = @_;

			if ($is_of_client && $bytes =~ $regexp && -e $file)
			{
				append_to_file("$file.held", '');
				usleep(50_000) while -e $file;
			}
			return $bytes;
		});
}

# Let a relay pass on what it has held.
sub release
{
	my ($file) = @_;

	unlink $file, "$file.held";
	return;
}

# A message of PostgreSQL's protocol
sub message
{
	my ($type, $content) = @_;

	return $type . pack('N', 4 + length $content) . $content;
}

# The messages of a result of so many columns, which has these rows, each a reference
sub result
{
	my ($columns, @rows) = @_;
	my $messages =
	  message('T', pack('n', $columns) . pack('(Z*NnNnNn)*', ('c', (0) x 6) x $columns));

	$messages .= message('D', pack('n(N/a*)*', scalar(@$_), @$_)) foreach @rows;
	return $messages . message('C', 'SELECT ' . scalar(@rows) . "\0");
}

# What lets everybody in as PostgreSQL does, and answers a query with what is in a file.
# While there is another file, with ".identity" behind its name, one that asks who it is has
# that for its answer.
sub new_false_postgresql
{
	my ($file) = @_;

	return new_false(
		sub {
			my ($client) = @_;

			for (;;)
			{
				read($client, my $head, 8) == 8 or return;
				my ($length, $code) = unpack 'NN', $head;
				read $client, my $parameters, $length - 8;
				last if $code >> 16 == 3;
				print $client 'N';    # neither TLS nor GSSAPI
			}
			print $client message('R', pack 'N', 0), message('Z', 'I');
			while (read($client, my $head, 5) == 5)
			{
				my ($type, $length) = unpack 'aN', $head;

				read $client, my $query, $length - 4;
				return if $type ne 'Q';
				print $client slurp_file($query =~ /pg_control_system/
					  && -e "$file.identity" ? "$file.identity" : $file),
				  message('Z', 'I');
			}
		});
}

# What lies before a server with a port, or with that which a function returns.  Another function is
# asked what to pass on of what has come, and is told whether that is from the client; it hangs up if
# nothing is defined.  What was passed on is done, though the client may have gone.
sub new_proxy
{
	my ($port, $pass_on) = @_;

	return new_false(
		sub {
			my ($client) = @_;
			my $server = IO::Socket::INET->new(
				PeerAddr => '127.0.0.1',
				PeerPort => ref $port ? $port->() : $port) or return;
			my $select = IO::Select->new($client, $server);

			while (my @ready = $select->can_read)
			{
				foreach my $from (@ready)
				{
					if (sysread $from, my $bytes, 65536)
					{
						$bytes = $pass_on->($bytes, $from == $client) // return;
						syswrite $from == $client ? $server : $client, $bytes;
					}
					else
					{
						return if $from == $server;
						$select->remove($from);
					}
				}
			}
		});
}

sub etcd_serves
{
	my ($self, $member) = @_;

	return eval {
		etcdctl({ %$self, members => [$member] }, 'get', 'any');
		1;
	};
}

# An ensemble of ZooKeeper, of so many servers.  Its archive names those that it needs, but
# none for what it logs: of these there may be one only.
sub new_zookeeper
{
	my ($name, $members) = @_;
	my $self = new_cluster("zookeeper_$name", $members, 3, \&zookeeper_serves);
	my $servers = '';

	foreach my $i (1 .. ($members > 1 ? $members : 0))
	{
		$servers .=
		  "server.$i=127.0.0.1:" . join(':', @{ $self->{members}[ $i - 1 ]{ports} }) . "\n";
	}
	foreach my $member (@{ $self->{members} })
	{
		my $dir = $member->{dir};

		mkdir $dir or die "could not create \"$dir\": $!";
		append_to_file("$dir/myid", $member->{name} =~ /(\d+)$/);
		append_to_file("$dir/zoo.cfg",
			"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir=$dir\nclientPort=$member->{client}\n"
			  . "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n$servers");
		$member->{command} = [
			qw(java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp),
			join(':', map { "/usr/share/java/$_.jar" } qw(zookeeper slf4j-simple)),
			'org.apache.zookeeper.server.quorum.QuorumPeerMain',
			"$dir/zoo.cfg"
		];
	}
	start_members($self);
	return $self;
}

sub zookeeper_serves
{
	my (undef, $member) = @_;
	my $socket =
	  IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $member->{client}, Timeout => 5)
	  or return;

	print $socket 'srvr';
	return grep { /^Mode: / } <$socket>;
}

# Send a request to the first server, without a user: its type, and what follows its head.
# Returns the error that is answered, 0 if there is none.
sub zookeeper_error
{
	my ($self, $type, $content) = @_;
	my $answer;
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{members}[0]{client},
		Timeout => 5) or die "could not connect: $@";

	my $session = pack 'Nq>Nq>N/a*', 0, 0, 10_000, 0, "\0" x 16;    # for 10 s

	foreach my $request ($session, pack('NN', 1, $type) . $content)
	{
		print $socket pack 'N/a*', $request;
		read($socket, my $length, 4) == 4 or die 'ZooKeeper has hung up';
		read $socket, $answer, unpack 'N', $length;
	}
	return unpack 'x12l>', $answer;
}

# A file with a password or a token, in place of the one before; returns its path.
sub write_passfile
{
	my ($content) = @_;

	$passfile //= PostgreSQL::Test::Utils::tempdir() . '/passfile';
	unlink $passfile;
	append_to_file($passfile, $content);
	chmod 0600, $passfile or die "could not change \"$passfile\": $!";
	return $passfile;
}

# The path of Consul, which test/run.sh may have got, or nothing
sub consul_program
{
	return $ENV{CONSUL} if $ENV{CONSUL};
	return (grep { -x } map { "$_/consul" } split /:/, $ENV{PATH})[0];
}

# A certificate of 127.0.0.1 that is its own authority, for servers and for clients.
# Returns the paths of it and of its key.
sub new_certificate
{
	my $dir = PostgreSQL::Test::Utils::tempdir();

	system_or_bail(
		'openssl', 'req', '-x509', '-newkey',
		'rsa:2048', '-nodes', '-days', '2',
		'-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1',
		'-keyout', "$dir/key.pem", '-out', "$dir/cert.pem");
	return ("$dir/cert.pem", "$dir/key.pem");
}

# A cluster of Consul, of so many servers, which serves.  Further text is for the configuration of
# each; a token that may do all is needed if not everybody may.
sub new_consul
{
	my ($name, $members, $configuration, $token) = @_;
	my $self = new_cluster("consul-$name", $members, 4, \&consul_serves);

	$self->{token} = $token;
	my $join = join ', ', map { qq{"127.0.0.1:$_->{ports}[0]"} } @{ $self->{members} };
	foreach my $member (@{ $self->{members} })
	{
		my ($lan, $server, $wan) = @{ $member->{ports} };
		my @files = map { "$member->{dir}$_.hcl" } '', '_more';

		append_to_file($files[1], $configuration // '');
		append_to_file($files[0], <<"EOF");
server = true
bootstrap_expect = $members
node_name = "$member->{name}"
data_dir = "$member->{dir}"
bind_addr = "127.0.0.1"
client_addr = "127.0.0.1"
ports { http = $member->{client} server = $server serf_lan = $lan serf_wan = $wan dns = -1 }
retry_join = [$join]
retry_interval = "1s"
performance { raft_multiplier = 1 }
disable_update_check = true
EOF
		$member->{command} = [ consul_program(), 'agent', map { ('-config-file', $_) } @files ];
	}
	start_members($self);
	return $self;
}

# It knows a leader, and has what the leader has.
sub consul_serves
{
	my ($self, $member) = @_;
	my $answer = ask_consul($self, $member, 'GET', 'v1/kv/?keys&consistent');

	return $answer->{success} || $answer->{status} == 404;
}

sub ask_consul
{
	my ($self, $member, $method, $path, $content) = @_;

	return HTTP::Tiny->new(timeout => 5)->request(
		$method,
		"http://127.0.0.1:$member->{client}/$path",
		{
			headers => { $self->{token} ? ('X-Consul-Token' => $self->{token}) : () },
			content => $content // ''
		});
}

# Send a request to the first member; returns the answer, or dies.
sub consul_request
{
	my ($self, $method, $path, $content) = @_;
	my $answer = ask_consul($self, $self->{members}[0], $method, $path, $content);

	die "$method $path: $answer->{status} $answer->{content}" unless $answer->{success};
	return $answer->{content};
}

1;
