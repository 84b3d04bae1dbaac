// SPDX-License-Identifier: Apache-2.0

// Package endings holds Atoll to it that every sandbox that has ended has one record, however it ended and whoever was killed
// meanwhile: programs as users run them, a hub and two replicas of one cluster's worker with disks of their own, on a plane.
package endings
