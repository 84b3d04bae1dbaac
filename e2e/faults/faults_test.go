// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// The reasons why a worker may exit: its last log line.
const (
	lapsed   = "the lease had lapsed"
	deposed  = "leader election lost"
	setBack  = "etcd is older than what this worker has seen"
	restored = "etcd was set back to an earlier state"
	// unstartable is of a worker whose API server does not tell what it has.
	unstartable = "building the manager"
)

// fault is a fault that Atoll must survive.
type fault struct {
	number int
	name   string
	// inject injects and heals the fault. It returns what is wrong beyond the checks of every run.
	inject func(ctx context.Context, s *scenario) error
	// ends are the reasons why a worker may exit, to be restarted.
	ends []string
	// loses marks faults that lose responses of a stream that continues, or repeat its calls: a claim without a key may leave a sandbox for
	// each of these.
	loses bool
	// hubs says of how many replicas the hub is.
	hubs hubs
}

// hubs is for how many replicas of the hub a fault is.
type hubs int

const (
	anyNumber hubs = iota
	single         // it is about the hub's volume
	several        // replicas, and their etcd
)

func (h hubs) fits(n int) bool {
	return h == anyNumber || h == single && n == 1 || h == several && n > 1
}

// faults are all faults, by number.
var faults = []fault{
	{number: 1, name: "partition", inject: partition},
	{number: 2, name: "half-open", inject: halfOpen},
	{number: 3, name: "long-partition", inject: longPartition},
	{number: 4, name: "hub-killed-in-report", inject: hubKilledInReport},
	{number: 5, name: "store-deleted", inject: storeDeleted, hubs: single},
	{number: 6, name: "store-damaged", inject: storeDamaged, hubs: single},
	{number: 7, name: "worker-killed-after-write", inject: workerKilledAfterWrite},
	{number: 8, name: "answer-lost", inject: answerLost, loses: true},
	{number: 9, name: "one-key-a-thousand-times", inject: oneKeyAThousandTimes},
	{number: 10, name: "races-of-one-key", inject: racesOfOneKey},
	{number: 11, name: "late-write-of-old-leader", inject: lateWriteOfOldLeader, ends: []string{lapsed, deposed}},
	{number: 12, name: "frames-spoiled", inject: framesSpoiled, loses: true},
	// On a small machine the API server may be away for longer than a lease while its etcd is restored.
	{number: 13, name: "etcd-restored", inject: etcdRestored, ends: []string{setBack, restored, lapsed, deposed}},
	{number: 14, name: "clocks-stepped", inject: clocksStepped},
	// Two renewals in a row whose responses are lost cost the lease; and a worker cannot start while responses are lost.
	{number: 15, name: "api-server-in-trouble", inject: apiServerInTrouble, ends: []string{lapsed, deposed, unstartable}},
	{number: 16, name: "blackhole-at-start", inject: blackholeAtStart},
	{number: 17, name: "removed-while-away", inject: removedWhileAway},
	{number: 18, name: "taken-name", inject: takenName},
	{number: 19, name: "two-writers", inject: twoWriters},
	{number: 20, name: "disk-full", inject: diskFull, hubs: single},
	{number: 21, name: "leader-changes", inject: leaderChanges, ends: []string{lapsed, deposed}},
	{number: 22, name: "late-dispatch", inject: lateDispatch},
	{number: 23, name: "killed-over-and-over", inject: killedOverAndOver},
	{number: 24, name: "started-twice", inject: startedTwice},
	{number: 25, name: "pods-edited", inject: podsEdited},
	{number: 31, name: "replica-killed", inject: replicaKilled, hubs: several},
	{number: 32, name: "replica-frozen", inject: replicaFrozen, hubs: several},
	{number: 33, name: "replicas-rolled", inject: replicasRolled, hubs: several},
	{number: 34, name: "etcd-member-killed", inject: etcdMemberKilled, hubs: several},
	{number: 35, name: "etcd-quorum-lost", inject: etcdQuorumLost, hubs: several},
}

// I1, I2, I4, I6: under every fault responses stay true, and afterwards all views agree.
func TestFaults(t *testing.T) {
	for _, f := range chosen {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%02d-%s/seed=%d", f.number, f.name, seed), func(t *testing.T) { f.run(t, seed) })
		}
	}
}

// choose parses a list of fault numbers. all are those that are for the number of replicas of the hub.
func choose(list string, replicas int) (out []fault, err error) {
	var valid []string
	known := map[string]fault{}
	for _, f := range faults {
		if f.hubs.fits(replicas) {
			number := strconv.Itoa(f.number)
			valid, known[number] = append(valid, number), f
			out = append(out, f)
		}
	}
	if list == "all" {
		return out, nil
	}
	out = nil
	for text := range strings.SplitSeq(list, ",") {
		f, is := known[text]
		if !is {
			return nil, fmt.Errorf("-faults %q: there is no fault %q with %d replicas of the hub; valid are all, and of %s some with commas "+
				"between them", list, text, replicas, strings.Join(valid, ", "))
		}
		out = append(out, f)
	}
	return out, nil
}

// parseSeeds parses a list of seeds.
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
