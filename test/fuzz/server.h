/*-------------------------------------------------------------------------
 *
 * server.h
 *	  What the fuzzers need of a server: memory that a call leaves behind,
 *	  errors that end it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_SERVER_H
#define FUZZ_SERVER_H

#include "postgres.h"

#include <setjmp.h>

#include "fmgr.h"

/* What the last error said. */
extern int	fuzz_sqlstate;
extern char fuzz_message[8192];

extern jmp_buf *fuzz_catcher;

/*
 * Call a function of the server's interface and catch its error.  False: it
 * raised one.
 */
extern bool fuzz_call(PGFunction function, int nargs, Datum *args, Datum *result);

/* Free all that was allocated since the last time. */
extern void fuzz_reset_memory(void);

/* A finding: say what and where, and die. */
extern void fuzz_finding(const char *file, int line, const char *what) pg_attribute_noreturn();

#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			fuzz_finding(__FILE__, __LINE__, #condition); \
	} while (0)

/* The data of one execution as a string, up to its first zero byte. */
extern char *fuzz_string(const uint8 *data, size_t size);

/* Numbers that depend on the data alone, so that a finding can be repeated. */
extern void fuzz_seed(const uint8 *data, size_t size);
extern uint64 fuzz_random(void);

/* libFuzzer's interface */
extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

#endif							/* FUZZ_SERVER_H */
