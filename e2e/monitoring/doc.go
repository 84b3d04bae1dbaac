// SPDX-License-Identifier: Apache-2.0

// Package monitoring holds what dashboards and alert rules say to what programs register.
//
// In go the collectors that a program registers (Recorder stands between it and its registry) and the files of the charts;
// out come what promlint says of the metrics, and the queries that no metric answers: by name, by the suffixes of a
// histogram, and by the labels that are asked for. Nothing is listed by hand, and a metric that has not been used yet, of
// which a registry shows nothing, counts as well.
//
// Hub and worker cannot see each other's packages, so each holds the files to its own metrics: those with its prefix, and
// the link's, which both have. Check refuses a name with any other prefix than the three.
package monitoring
