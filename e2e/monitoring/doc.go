// SPDX-License-Identifier: Apache-2.0

// Package monitoring compares dashboards and alert rules with the metrics that programs register.
//
// In go the collectors that a program registers (Recorder wraps its registry) and the files of the charts. Out come promlint's
// findings, and the queries without a matching metric: by name, by the suffixes of a histogram, and by label. No list is kept
// by hand. A metric without samples, which a registry does not show, counts as well.
//
// Hub and worker cannot import each other's packages, so each compares the files with its own metrics: those with its prefix,
// and the link's, which both have. Check refuses a name with any other prefix than the three.
package monitoring
