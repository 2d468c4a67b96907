# snowflake: 64-bit, time-sortable Snowflake IDs

EXTENSION = snowflake snowflake_keeper
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(srcdir)/snowflake.control)
# Every script that was released, as it was then.  A new version adds one that
# updates, such as sql/snowflake--1.0--1.1.sql; CREATE EXTENSION runs it as well.
DATA = $(sort $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/sql/*.sql)))

MODULE_big = snowflake
OBJS = \
	src/admin.o \
	src/base/clock.o \
	src/base/duration.o \
	src/base/row.o \
	src/base/settings.o \
	src/base/worker.o \
	src/convert/convert.o \
	src/convert/expressions.o \
	src/convert/facts.o \
	src/convert/locks.o \
	src/convert/obstacles.o \
	src/convert/plan.o \
	src/convert/query.o \
	src/convert/roles.o \
	src/generator/counters.o \
	src/generator/generator.o \
	src/generator/keeper_state.o \
	src/generator/last_id.o \
	src/generator/slot.o \
	src/keeper/gate_text.o \
	src/keeper/keeper.o \
	src/keeper/keeper_log.o \
	src/keeper/keeper_transaction.o \
	src/keeper/reservation_home.o \
	src/keeper/reservation_table.o \
	src/keeper/reserve.o \
	src/layout/decode.o \
	src/layout/encode.o \
	src/layout/explain.o \
	src/layout/io.o \
	src/layout/layout.o \
	src/layout/server_layout.o \
	src/layout/timerange.o \
	src/lease/fleet.o \
	src/lease/lease.o \
	src/lease/lease_record.o \
	src/lease/lease_state.o \
	src/lease/lessee.o \
	src/lease/node_settings.o \
	src/lease/node_source.o \
	src/mint/frontier.o \
	src/mint/mint.o \
	src/mint/mint_error.o \
	src/mint/prepared.o \
	src/mint/tail.o \
	src/public/cipher.o \
	src/public/keys.o \
	src/public/public.o \
	src/shmem.o \
	src/snowflake.o \
	src/stats.o \
	src/status.o
SNOWFLAKE_HEADERS = $(wildcard $(srcdir)/src/*.h $(srcdir)/src/*/*.h)

# The OpenSSL of the server, if it has one and its header is here.  Without it,
# snowflake_public() and its like only raise an error.
OPENSSL_HEADER = $(shell $(CC) $(CPPFLAGS) -include openssl/evp.h -E -x c /dev/null >/dev/null 2>&1 && echo yes)
WITH_OPENSSL = $(and $(filter openssl,$(with_ssl)),$(OPENSSL_HEADER))

PG_CPPFLAGS = -I$(srcdir)/src -DSNOWFLAKE_VERSION='"$(EXTVERSION)"' \
	$(if $(WITH_OPENSSL),-DSNOWFLAKE_OPENSSL)
SHLIB_LINK += $(if $(WITH_OPENSSL),-lcrypto)
# PostgreSQL 15 would export every symbol, later versions do as is said here
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -fvisibility=hidden

# Regression and isolation tests have a server of their own, which preloads the
# library and has a node ID.  TEMP_INSTANCE= is for a server that runs already.
TEMP_INSTANCE = --temp-instance=$(1) --temp-config='$(srcdir)/test/server.conf'
REGRESS = setup type bigint layout vectors decode mint timerange encode explain public convert tail
REGRESS_OPTS = --inputdir=test --encoding=UTF8 $(call TEMP_INSTANCE,tmp_check)
ISOLATION = concurrent_keys frontier session_order
ISOLATION_OPTS = --inputdir=test --outputdir=. $(call TEMP_INSTANCE,tmp_check_iso)
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS) $(OBJS:.o=.bc): $(SNOWFLAKE_HEADERS) snowflake.control
ifeq ($(WITH_OPENSSL),)
src/public/cipher.o: | without-openssl
.PHONY: without-openssl
without-openssl:
	@echo 'No OpenSSL, or no header of it: snowflake_public() and its like will only raise an error.'
endif

# Coordinators of fleets, each a module of its own with the libraries that it takes.
# What those need to be built is not everywhere: what is missing is left out.
CURL_CONFIG ?= curl-config
COORDINATORS = postgresql
coordinator_postgresql_LIBS = $(libpq)
ifneq ($(shell command -v $(CURL_CONFIG)),)
COORDINATORS += consul etcd
coordinator_consul_OBJS = src/coordinator/http.o src/coordinator/json.o src/coordinator/url.o
coordinator_consul_LIBS = $(shell $(CURL_CONFIG) --libs)
coordinator_etcd_OBJS = $(coordinator_consul_OBJS)
coordinator_etcd_LIBS = $(coordinator_consul_LIBS)
else
$(info snowflake: without the coordinators consul and etcd, which need libcurl)
endif
# before 3.5 it aborts the process when a transaction ends without an answer (ZOOKEEPER-1636)
ifneq ($(shell grep -Ls 'ZOO_MINOR_VERSION 4' /usr/include/zookeeper/zookeeper_version.h),)
COORDINATORS += zookeeper
coordinator_zookeeper_OBJS = src/coordinator/url.o
coordinator_zookeeper_LIBS = -lzookeeper_st
else
$(info snowflake: without the coordinator zookeeper, which needs libzookeeper-st from 3.5 on)
endif

COORDINATOR_OBJS = $(sort $(foreach kind,$(COORDINATORS),src/coordinator/$(kind).o $(coordinator_$(kind)_OBJS)))
COORDINATOR_MODULES = $(COORDINATORS:%=snowflake_%$(DLSUFFIX))

all: $(COORDINATOR_MODULES)
$(COORDINATOR_OBJS): $(SNOWFLAKE_HEADERS) snowflake.control
$(COORDINATOR_OBJS): override CPPFLAGS += -I$(shell $(PG_CONFIG) --includedir)

define coordinator_rule
snowflake_$(1)$(DLSUFFIX): src/coordinator/$(1).o $(coordinator_$(1)_OBJS)
	$$(CC) $$(CFLAGS) $$^ $$(LDFLAGS) $$(LDFLAGS_SL) -shared -o $$@ $(coordinator_$(1)_LIBS)
endef
$(foreach kind,$(COORDINATORS),$(eval $(call coordinator_rule,$(kind))))

install: install-coordinators
uninstall: uninstall-coordinators
clean: clean-coordinators

.PHONY: install-coordinators uninstall-coordinators clean-coordinators
install-coordinators: $(COORDINATOR_MODULES)
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(INSTALL_SHLIB) $(COORDINATOR_MODULES) '$(DESTDIR)$(pkglibdir)/'
uninstall-coordinators:
	rm -f $(addprefix '$(DESTDIR)$(pkglibdir)'/,$(COORDINATOR_MODULES))
clean-coordinators:
	rm -f $(COORDINATOR_MODULES) $(COORDINATOR_OBJS)

# What PGXN wants, of the last commit
DISTNAME = snowflake-$(shell sed -n 's/^\t"version": "\(.*\)",$$/\1/p' $(srcdir)/META.json)

.PHONY: dist
dist:
	git -C $(srcdir) archive --prefix=$(DISTNAME)/ -o '$(CURDIR)/$(DISTNAME).zip' HEAD
	git -C $(srcdir) archive --prefix=$(DISTNAME)/ -o '$(CURDIR)/$(DISTNAME).tar.gz' HEAD
