// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"testing"
)

// faults are what Atoll must survive, by number.
var faults = []struct {
	number int
	name   string
	inject fault
}{
	{1, "partition", partition},
	{2, "half-open", halfOpen},
	{3, "long-partition", longPartition},
	{4, "hub-killed-in-report", hubKilledInReport},
	{5, "store-deleted", storeDeleted},
	{6, "store-damaged", storeDamaged},
	{7, "worker-killed-after-write", workerKilledAfterWrite},
	{8, "answer-lost", answerLost},
	{9, "one-key-a-thousand-times", oneKeyAThousandTimes},
	{10, "races-of-one-key", racesOfOneKey},
	{11, "late-write-of-old-leader", lateWriteOfOldLeader},
	{12, "frames-spoiled", framesSpoiled},
	{13, "etcd-restored", etcdRestored},
	{14, "clocks-stepped", clocksStepped},
	{15, "api-server-in-trouble", apiServerInTrouble},
	{16, "blackhole-at-start", blackholeAtStart},
	{17, "removed-while-away", removedWhileAway},
	{18, "taken-name", takenName},
	{19, "two-writers", twoWriters},
	{20, "disk-full", diskFull},
	{21, "leader-changes", leaderChanges},
	{22, "late-dispatch", lateDispatch},
	{23, "killed-over-and-over", killedOverAndOver},
	{24, "started-twice", startedTwice},
	{25, "pods-edited", podsEdited},
}

// I1, I2, I4, I6: whatever breaks, answers hold, and afterwards everything agrees again.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		if !chosen(f.number) {
			continue
		}
		for _, seed := range seeds(t) {
			t.Run(fmt.Sprintf("%02d-%s/seed=%d", f.number, f.name, seed), func(t *testing.T) {
				runFault(t, f.number, f.name, f.inject, seed)
			})
		}
	}
}
