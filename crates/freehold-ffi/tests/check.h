/* What the C tests are written with: a check that says where and what, and ends the program. */
#ifndef FREEHOLD_TEST_CHECK_H
#define FREEHOLD_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s: not so\n", __FILE__, __LINE__, #condition);            \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* A call that has to succeed, with `error` as its last argument. */
#define OK(call)                                                                               \
    do {                                                                                       \
        int status_ = (call);                                                                  \
        if (status_ != FREEHOLD_STATUS_OK) {                                                   \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call,                 \
                    freehold_strerror(status_), error.message);                                \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* A call that has to fail that way, and has to say so in `error` too. */
#define FAILS(call, expected_status)                                                           \
    do {                                                                                       \
        int status_ = (call);                                                                  \
        if (status_ != (expected_status) || (int)error.status != status_) {                    \
            fprintf(stderr, "%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call,              \
                    freehold_strerror(status_), freehold_strerror(expected_status));           \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#endif
