// SPDX-License-Identifier: Apache-2.0

// Package monitoring compares dashboards and alert rules with registered metrics.
//
// In: a program's collectors (Recorder) and the charts' files. Out: promlint's findings, and queries that match no name, suffix or label.
// Metrics without samples count too.
//
// Hub and worker each compare metrics with their own prefix, and the link's; Check refuses any other prefix.
package monitoring
