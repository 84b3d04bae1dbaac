// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Why a worker ends by itself: what it logs last.
const (
	lapsed   = "the lease had lapsed"
	deposed  = "leader election lost"
	setBack  = "etcd is older than what this worker has seen"
	restored = "etcd was set back to an earlier state"
)

// fault is something that Atoll must survive.
type fault struct {
	number int
	name   string
	// inject breaks something and heals it. What is wrong apart from what every run looks at is returned.
	inject func(ctx context.Context, s *scenario) error
	// ends are why a worker may end by itself, to be started again.
	ends []string
	// loses tells that answers vanish from a stream that goes on, as on no connection: of a claim without a key a sandbox is
	// left then, though no program died.
	loses bool
}

// faults are all of them, by number.
var faults = []fault{
	{number: 1, name: "partition", inject: partition},
	{number: 2, name: "half-open", inject: halfOpen},
	{number: 3, name: "long-partition", inject: longPartition},
	{number: 4, name: "hub-killed-in-report", inject: hubKilledInReport},
	{number: 5, name: "store-deleted", inject: storeDeleted},
	{number: 6, name: "store-damaged", inject: storeDamaged},
	{number: 7, name: "worker-killed-after-write", inject: workerKilledAfterWrite},
	{number: 8, name: "answer-lost", inject: answerLost, loses: true},
	{number: 9, name: "one-key-a-thousand-times", inject: oneKeyAThousandTimes},
	{number: 10, name: "races-of-one-key", inject: racesOfOneKey},
	{number: 11, name: "late-write-of-old-leader", inject: lateWriteOfOldLeader, ends: []string{lapsed, deposed}},
	{number: 12, name: "frames-spoiled", inject: framesSpoiled, loses: true},
	{number: 13, name: "etcd-restored", inject: etcdRestored, ends: []string{setBack, restored}},
	{number: 14, name: "clocks-stepped", inject: clocksStepped},
	{number: 15, name: "api-server-in-trouble", inject: apiServerInTrouble},
	{number: 16, name: "blackhole-at-start", inject: blackholeAtStart},
	{number: 17, name: "removed-while-away", inject: removedWhileAway},
	{number: 18, name: "taken-name", inject: takenName},
	{number: 19, name: "two-writers", inject: twoWriters},
	{number: 20, name: "disk-full", inject: diskFull},
	{number: 21, name: "leader-changes", inject: leaderChanges, ends: []string{lapsed, deposed}},
	{number: 22, name: "late-dispatch", inject: lateDispatch},
	{number: 23, name: "killed-over-and-over", inject: killedOverAndOver},
	{number: 24, name: "started-twice", inject: startedTwice},
	{number: 25, name: "pods-edited", inject: podsEdited},
}

// I1, I2, I4, I6: whatever breaks, answers hold, and afterwards everything agrees again.
func TestFaults(t *testing.T) {
	for _, f := range chosen {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%02d-%s/seed=%d", f.number, f.name, seed), func(t *testing.T) { f.run(t, seed) })
		}
	}
}

// choose returns the faults of a list of numbers.
func choose(list string) (out []fault, err error) {
	if list == "all" {
		return faults, nil
	}
	for text := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || number > len(faults) {
			return nil, fmt.Errorf("-faults %q: there is no fault %q; valid are all, and 1 to %d with commas between them", list, text, len(faults))
		}
		out = append(out, faults[number-1])
	}
	return out, nil
}

// parseSeeds returns the seeds of a list.
func parseSeeds(list string) (out []uint64, err error) {
	for text := range strings.SplitSeq(list, ",") {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("-seeds %q: %w", list, err)
		}
		out = append(out, seed)
	}
	return out, nil
}
