# snowflake: 64-bit, time-sortable Snowflake IDs

EXTENSION = snowflake snowflake_keeper snowflake_migrate snowflake_partitions $(if $(WITH_OPENSSL),snowflake_public)
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(srcdir)/snowflake.control)
# Every script that was released, as it was then.  A new version adds one that
# updates, such as sql/snowflake--1.0--1.1.sql; CREATE EXTENSION runs it as well.
DATA = $(filter-out $(if $(WITH_OPENSSL),,sql/snowflake_public--%), \
	$(sort $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/sql/*.sql))))

MODULE_big = snowflake
OBJS = \
	src/admin.o \
	src/base/clock.o \
	src/base/duration.o \
	src/base/settings.o \
	src/base/worker.o \
	src/frontier/frontier.o \
	src/frontier/frontier_sample.o \
	src/frontier/prepared.o \
	src/generator/counters.o \
	src/generator/generator.o \
	src/generator/keeper_state.o \
	src/generator/slot.o \
	src/generator/words.o \
	src/keeper/keeper.o \
	src/keeper/keeper_log.o \
	src/keeper/keeper_transaction.o \
	src/keeper/reservation_home.o \
	src/keeper/reservation_table.o \
	src/keeper/reserve.o \
	src/layout/decode.o \
	src/layout/encode.o \
	src/layout/explain.o \
	src/layout/indexscan.o \
	src/layout/io.o \
	src/layout/layout.o \
	src/layout/server_layout.o \
	src/layout/timebound.o \
	src/layout/timeexpr.o \
	src/layout/timefilter.o \
	src/layout/timehook.o \
	src/layout/timejoin.o \
	src/layout/timeorder.o \
	src/layout/timeperiod.o \
	src/layout/timerange.o \
	src/lease/fleet.o \
	src/lease/host_number.o \
	src/lease/lease.o \
	src/lease/lease_choice.o \
	src/lease/lease_record.o \
	src/lease/lease_state.o \
	src/lease/lessee.o \
	src/lease/node_settings.o \
	src/lease/node_source.o \
	src/mint/mint.o \
	src/mint/refusal.o \
	src/mint/snapshot_frontier.o \
	src/snowflake.o \
	src/status.o
SNOWFLAKE_HEADERS = $(wildcard $(srcdir)/src/*.h $(srcdir)/src/*/*.h)

# The OpenSSL of the server, if it has one and its header is here: what snowflake_public
# needs.  PGXS says which it has, so this is looked up late, and once.  What depends on it
# is not exported: from 4.4 on, make would expand that for the first $(shell) below, when
# nothing is known yet, wherever the environment happens to have a variable of its name.
OPENSSL_HEADER = $(shell $(CC) $(CPPFLAGS) -include openssl/evp.h -E -x c /dev/null >/dev/null 2>&1 && echo yes)
WITH_OPENSSL = $(eval WITH_OPENSSL := $(and $(filter openssl,$(with_ssl)),$(OPENSSL_HEADER)))$(WITH_OPENSSL)
unexport EXTENSION DATA REGRESS

PG_CPPFLAGS = -I$(srcdir)/src -DSNOWFLAKE_VERSION='"$(EXTVERSION)"'
# PostgreSQL 15 would export every symbol, later versions do as is said here
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -fvisibility=hidden

# Regression and isolation tests have a server of their own, which preloads the
# library and has a node ID.  TEMP_INSTANCE= is for a server that runs already.
TEMP_INSTANCE = --temp-instance=$(1) --temp-config='$(srcdir)/test/server.conf'
REGRESS = setup type bigint layout vectors decode mint timerange timefilter timeorder encode explain settled $(if $(WITH_OPENSSL),public)
REGRESS_OPTS = --inputdir=test --encoding=UTF8 $(call TEMP_INSTANCE,tmp_check)
ISOLATION = concurrent_keys frontier session_order
ISOLATION_OPTS = --inputdir=test --outputdir=. $(call TEMP_INSTANCE,tmp_check_iso)
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS honours prefix= from 18 on, but not where the server's directories do not follow from its
# own prefix, as on Debian: it would install into those.
ifeq ($(origin prefix),command line)
in_prefix = $(prefix)/$(1)$(if $(findstring postgres,$(prefix))$(findstring pgsql,$(prefix)),,/postgresql)
override datadir := $(call in_prefix,share)
override pkglibdir := $(call in_prefix,lib)
endif

$(OBJS) $(OBJS:.o=.bc): $(SNOWFLAKE_HEADERS) snowflake.control

# The extension snowflake_public, and the coordinators of fleets: each is a module of its
# own, with the libraries that it takes.  Modules whose libraries are not installed are
# left out.
ifneq ($(WITH_OPENSSL),)
OTHER_MODULES = public
public_OBJS = src/public/cipher.o src/public/keys.o src/public/public.o
public_LIBS = -lcrypto
else
$(info snowflake: without the extension snowflake_public, which needs the OpenSSL of the server and its header)
endif

CURL_CONFIG ?= curl-config
OTHER_MODULES += postgresql
postgresql_OBJS = src/coordinator/postgresql.o src/coordinator/pg_session.o
postgresql_LIBS = $(libpq)
ifneq ($(shell command -v $(CURL_CONFIG)),)
OTHER_MODULES += consul etcd
http_OBJS = src/coordinator/http.o src/coordinator/url.o
http_LIBS = $(shell $(CURL_CONFIG) --libs)
consul_OBJS = src/coordinator/consul.o $(http_OBJS)
consul_LIBS = $(http_LIBS)
etcd_OBJS = src/coordinator/etcd.o $(http_OBJS)
etcd_LIBS = $(http_LIBS)
else
$(info snowflake: without the coordinators consul and etcd, which need libcurl)
endif
# before 3.5 it aborts the process when a transaction ends without an answer (ZOOKEEPER-1636)
ifneq ($(shell grep -Ls 'ZOO_MINOR_VERSION 4' /usr/include/zookeeper/zookeeper_version.h),)
OTHER_MODULES += zookeeper
zookeeper_OBJS = src/coordinator/zookeeper.o src/coordinator/url.o
zookeeper_LIBS = -lzookeeper_st
else
$(info snowflake: without the coordinator zookeeper, which needs libzookeeper-st from 3.5 on)
endif

OTHER_OBJS = $(sort $(foreach module,$(OTHER_MODULES),$($(module)_OBJS)))
OTHER_LIBRARIES = $(OTHER_MODULES:%=snowflake_%$(DLSUFFIX))

all: $(OTHER_LIBRARIES)
$(OTHER_OBJS): $(SNOWFLAKE_HEADERS) snowflake.control
$(filter src/coordinator/%,$(OTHER_OBJS)): override CPPFLAGS += -I$(shell $(PG_CONFIG) --includedir)

define module_rule
snowflake_$(1)$(DLSUFFIX): $($(1)_OBJS)
	$$(CC) $$(CFLAGS) $$^ $$(LDFLAGS) $$(LDFLAGS_SL) -shared -o $$@ $($(1)_LIBS)
endef
$(foreach module,$(OTHER_MODULES),$(eval $(call module_rule,$(module))))

# in a VPATH build, the directories of the objects do not exist yet
$(OBJS) $(OBJS:.o=.bc) $(OTHER_OBJS): | object-directories
.PHONY: object-directories
object-directories:
	@$(MKDIR_P) $(sort $(dir $(OBJS) $(OTHER_OBJS)))

install: install-modules
uninstall: uninstall-modules
clean: clean-modules

.PHONY: install-modules uninstall-modules clean-modules
install-modules: $(OTHER_LIBRARIES)
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(INSTALL_SHLIB) $(OTHER_LIBRARIES) '$(DESTDIR)$(pkglibdir)/'
uninstall-modules:
	rm -f $(addprefix '$(DESTDIR)$(pkglibdir)'/,$(OTHER_LIBRARIES))
clean-modules:
	rm -f $(OTHER_LIBRARIES) $(OTHER_OBJS)

# The archive for PGXN, of the last commit.  Its users must be able to write to the maintainers, so META.json
# and the packages must have their address, and META.json that of the repository; UNRELEASED=yes makes an
# archive for tests.
DISTNAME = snowflake-$(shell sed -n 's/^\t"version": "\(.*\)",$$/\1/p' $(srcdir)/META.json)

.PHONY: dist
dist:
	@[ '$(UNRELEASED)' = yes ] || \
		{ git -C $(srcdir) show HEAD:META.json | grep -q '"repository"' && \
		! git -C $(srcdir) grep -n no-public-address-yet HEAD -- META.json debian packaging >&2; } || \
		{ echo 'a public address is missing: see CONTRIBUTING.md, "Release"' >&2; exit 1; }
	git -C $(srcdir) archive --prefix=$(DISTNAME)/ -o '$(CURDIR)/$(DISTNAME).zip' HEAD
	git -C $(srcdir) archive --prefix=$(DISTNAME)/ -o '$(CURDIR)/$(DISTNAME).tar.gz' HEAD
