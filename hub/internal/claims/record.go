// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/store"
)

// What is in the store. Every record has one entry below expire/, which the sweeper reads in the order of time.
//
//	claim/<key hash>                       record
//	id/<sandbox id>                        idRecord: of sandboxes with a key
//	expire/<unix seconds>/<one of above>   when to look whether it can go
//	open/<key hash>                        pending claims that nobody waits for, for the next process to take up
const (
	claimPrefix  = "claim/"
	idPrefix     = "id/"
	expirePrefix = "expire/"
	openPrefix   = "open/"
)

type state string

const (
	statePending  state = "pending"  // dispatched, or about to be
	stateAnswered state = "answered" // the sandbox is known
	stateRefused  state = "refused"  // every candidate refused: a retry starts anew under the next attempt
	stateEnded    state = "ended"
)

// record is what the hub durably knows of a claim key.
type record struct {
	Request []byte `json:"request"` // CreateSandboxRequest, resolved, without wait
	Cluster string `json:"cluster"`
	// ClusterUID tells which cluster of that name it was; empty in records of older builds.
	ClusterUID string `json:"clusterUid,omitempty"`
	// Adopted says that this was read from a cluster's key index: Request is not known until a retry names it.
	Adopted   bool      `json:"adopted,omitempty"`
	Pool      string    `json:"pool"`
	Attempt   int32     `json:"attempt"`
	State     state     `json:"state"`
	Unwaited  bool      `json:"unwaited,omitempty"` // nobody waits: the hub itself pursues the claim until its deadline
	CreatedAt time.Time `json:"createdAt"`
	Deadline  time.Time `json:"deadline"`
	ExpireAt  time.Time `json:"expireAt"`
	SandboxID string    `json:"sandboxId,omitempty"`
	Terminal  []byte    `json:"terminal,omitempty"` // Sandbox; where the claim ended and no sandbox's own record is known
	Decision  []byte    `json:"decision,omitempty"`
}

// idRecord leads from a sandbox id to its claim, and keeps the sandbox's terminal record.
type idRecord struct {
	KeyHash string `json:"keyHash"`
	Ended   []byte `json:"ended,omitempty"` // Sandbox
}

// keyHash names a claim key in the store, in Pod labels and on the wire. None of the parts contains NUL.
func keyHash(team, namespace, key string) string {
	sum := sha256.Sum256([]byte(team + "\x00" + namespace + "\x00" + key))
	return hex.EncodeToString(sum[:])[:32]
}

// isKeyHash reports whether a text has the form of a key hash.
func isKeyHash(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

func expireKey(at time.Time, key string) string {
	return fmt.Sprintf("%s%012d/%s", expirePrefix, at.Unix(), key)
}

// parseExpireKey reads what expireKey wrote.
func parseExpireKey(key string) (at time.Time, subject string, err error) {
	var seconds int64
	rest := strings.TrimPrefix(key, expirePrefix)
	stamp, subject, ok := strings.Cut(rest, "/")
	if _, err := fmt.Sscanf(stamp, "%d", &seconds); err != nil || !ok {
		return time.Time{}, "", fmt.Errorf("entry %q of the claims file is damaged", key)
	}
	return time.Unix(seconds, 0), subject, nil
}

// plan is the transaction that replaces old by new (nil: none), every index included.
func plan(hash string, old held, new *record) (store.Txn, error) {
	txn := store.Txn{If: []store.Condition{{Key: claimPrefix + hash, Revision: old.revision}}}
	if r := old.record; r != nil {
		txn.Deletes = append(txn.Deletes, expireKey(r.ExpireAt, claimPrefix+hash))
		if r.open() {
			txn.Deletes = append(txn.Deletes, openPrefix+hash)
		}
	}
	if new == nil {
		txn.Deletes = append(txn.Deletes, claimPrefix+hash)
		if r := old.record; r != nil && r.SandboxID != "" {
			txn.Deletes = append(txn.Deletes, idPrefix+r.SandboxID)
		}
		return txn, nil
	}
	value, err := json.Marshal(new)
	if err != nil {
		return txn, fmt.Errorf("encoding claim: %w", err)
	}
	txn.Puts = append(txn.Puts, store.Put{Key: claimPrefix + hash, Value: value},
		store.Put{Key: expireKey(new.ExpireAt, claimPrefix+hash)})
	if new.open() {
		txn.Puts = append(txn.Puts, store.Put{Key: openPrefix + hash})
	}
	txn.Deletes = without(txn.Deletes, txn.Puts)
	return txn, nil
}

func (r *record) open() bool { return r.Unwaited && r.State == statePending }

// without keeps a transaction to one mention a key: an index entry that stays is not deleted.
func without(deletes []string, puts []store.Put) []string {
	var kept []string
	for _, key := range deletes {
		stays := false
		for _, p := range puts {
			stays = stays || p.Key == key
		}
		if !stays {
			kept = append(kept, key)
		}
	}
	return kept
}

func (r *record) request() (*sandboxv1.CreateSandboxRequest, error) {
	req := &sandboxv1.CreateSandboxRequest{}
	return req, unmarshal(r.Request, req, "request")
}

func (r *record) decision() (*sandboxv1.Decision, error) {
	d := &sandboxv1.Decision{}
	return d, unmarshal(r.Decision, d, "decision")
}

func unmarshal(data []byte, into proto.Message, what string) error {
	if err := proto.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the %s of a claim: %w", what, err)
	}
	return nil
}

// marshal cannot fail: requests and answers came over the wire, so their strings are valid UTF-8.
func marshal(m proto.Message) []byte {
	data, _ := proto.Marshal(m)
	return data
}

// sketch is the sandbox of a claim of which no Pod is known.
func sketch(req *sandboxv1.CreateSandboxRequest, phase sandboxv1.Phase) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{
		Namespace: req.GetNamespace(), Env: req.GetEnv(), Image: req.GetImage(), Team: req.GetTeam(), User: req.GetUser(),
		Labels: req.GetLabels(), Metadata: req.GetMetadata(), ClaimKey: req.GetClaimKey(),
		StartupTimeout: req.GetStartupTimeout(), Phase: phase,
	}
}

// canceled is the terminal record of a claim that was cancelled before a sandbox of it was known.
func canceled(req *sandboxv1.CreateSandboxRequest, r *record, now time.Time) *sandboxv1.Sandbox {
	s := sketch(req, sandboxv1.Phase_ENDED)
	s.Id, s.ClusterId, s.Pool = r.SandboxID, r.Cluster, r.Pool
	s.StopReason, s.TerminatedAt = "Canceled", timestamppb.New(now)
	return s
}

// releasedEnd is the terminal record of a sandbox that was released, until its own arrives.
func releasedEnd(req *sandboxv1.CreateSandboxRequest, r *record, now time.Time) *sandboxv1.Sandbox {
	s := canceled(req, r, now)
	s.StopReason = "Released"
	return s
}

// endForgotten is the end of a claim whose cluster was forgotten while it had its sandbox.
func endForgotten(req *sandboxv1.CreateSandboxRequest, r *record, now time.Time) *sandboxv1.Sandbox {
	s := canceled(req, r, now)
	s.StopReason, s.FailureReason = "Failed", "ClusterForgotten"
	s.FailureMessage = "cluster " + r.Cluster + " was removed from the federation"
	return s
}

// lost is what a key answers whose sandbox was answered once and is unknown to its cluster now: it ended, and how was lost.
func lost(req *sandboxv1.CreateSandboxRequest, r *record) *sandboxv1.Sandbox {
	s := sketch(req, sandboxv1.Phase_ENDED)
	s.Id, s.ClusterId, s.Pool = r.SandboxID, r.Cluster, r.Pool
	s.StopReason, s.FailureReason = "Failed", "RecordLost"
	s.FailureMessage = "cluster " + r.Cluster + " no longer knows this sandbox, and its terminal record has not arrived"
	return s
}
