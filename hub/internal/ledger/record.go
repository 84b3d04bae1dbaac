// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

const (
	// ClaimPrefix is the prefix of records, followed by the key hash.
	ClaimPrefix = "claim/"
	// IDPrefix is the prefix of entries that map sandbox ids to records.
	IDPrefix     = "id/"
	expirePrefix = "expire/"
	openPrefix   = "open/"
)

// State is the progress of a claim.
type State string

// The states.
const (
	Pending  State = "pending"  // dispatched, or about to be
	Returned State = "answered" // a sandbox was granted and is known
	Refused  State = "refused"  // every candidate refused: a retry starts again under the next attempt
	Ended    State = "ended"
	// Unproven: after a loss, a cluster names the key without a proof that the hub sent it the key. The key is neither returned nor claimed.
	Unproven State = "unproven"
)

// Record is the hub's durable state of a claim key.
type Record struct {
	Request []byte `json:"request"` // CreateSandboxRequest, resolved, without wait; for a refused claim only its names
	// Digest is the digest of the whole request if Request has only its names.
	Digest []byte `json:"digest,omitempty"`
	// Account is the account that the record counts against; empty in records of older builds and in adopted ones.
	Account string `json:"account,omitempty"`
	Cluster string `json:"cluster"`
	// ClusterUID is the uid of the cluster with that name; empty in records of older builds.
	ClusterUID string `json:"clusterUid,omitempty"`
	// Adopted marks a record that was read from a cluster's key index: Request is unknown until a retry sets it.
	Adopted bool `json:"adopted,omitempty"`
	// Joined means that a replica other than the writer of the attempt may have sent it, so the writer does not know what was sent.
	Joined bool `json:"joined,omitempty"`
	// Replica is the replica that pursues a claim without a waiting caller; empty with one replica.
	Replica   string    `json:"replica,omitempty"`
	Pool      string    `json:"pool"`
	Attempt   int32     `json:"attempt"`
	State     State     `json:"state"`
	Unwaited  bool      `json:"unwaited,omitempty"` // no caller waits: the hub itself pursues the claim until its deadline
	CreatedAt time.Time `json:"createdAt"`
	Deadline  time.Time `json:"deadline"`
	ExpireAt  time.Time `json:"expireAt"`
	SandboxID string    `json:"sandboxId,omitempty"`
	Terminal  []byte    `json:"terminal,omitempty"` // Sandbox; set if the claim ended and the sandbox's own terminal record is not known
	Decision  []byte    `json:"decision,omitempty"`
}

// IDRecord maps a sandbox id to its claim, and keeps the sandbox's terminal record.
type IDRecord struct {
	KeyHash string `json:"keyHash"`
	Ended   []byte `json:"ended,omitempty"` // Sandbox
}

// KeyHash returns the name of a claim key in the store, in Pod labels and on the wire. No part contains NUL.
func KeyHash(team, namespace, key string) string {
	sum := sha256.Sum256([]byte(team + "\x00" + namespace + "\x00" + key))
	return hex.EncodeToString(sum[:])[:32]
}

// IsKeyHash reports whether a text has the form of a key hash.
func IsKeyHash(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

func expireKey(at time.Time, key string) string {
	return fmt.Sprintf("%s%012d/%s", expirePrefix, at.Unix(), key)
}

// parseExpireKey parses a key of expireKey.
func parseExpireKey(key string) (at time.Time, subject string, err error) {
	var seconds int64
	rest := strings.TrimPrefix(key, expirePrefix)
	stamp, subject, ok := strings.Cut(rest, "/")
	if _, err := fmt.Sscanf(stamp, "%d", &seconds); err != nil || !ok {
		return time.Time{}, "", fmt.Errorf("entry %q of the claims file is %w", key, ErrDamaged)
	}
	return time.Unix(seconds, 0), subject, nil
}

// plan returns the transaction that replaces old by new, including all indexes. A nil new removes the record.
func plan(hash string, old Held, new *Record) (store.Txn, error) {
	txn := store.Txn{If: []store.Condition{{Key: ClaimPrefix + hash, Revision: old.Revision}}}
	if r := old.Record; r != nil {
		txn.Deletes = append(txn.Deletes, expireKey(r.ExpireAt, ClaimPrefix+hash))
		if r.Open() {
			txn.Deletes = append(txn.Deletes, openPrefix+hash)
		}
	}
	if new == nil {
		txn.Deletes = append(txn.Deletes, ClaimPrefix+hash)
		if r := old.Record; r != nil && r.SandboxID != "" {
			txn.Deletes = append(txn.Deletes, IDPrefix+r.SandboxID)
		}
		return txn, nil
	}
	value, err := json.Marshal(new)
	if err != nil {
		return txn, fmt.Errorf("encoding claim: %w", err)
	}
	txn.Puts = append(txn.Puts, store.Put{Key: ClaimPrefix + hash, Value: value},
		store.Put{Key: expireKey(new.ExpireAt, ClaimPrefix+hash)})
	if new.Open() {
		txn.Puts = append(txn.Puts, store.Put{Key: openPrefix + hash, Value: []byte(new.Replica)})
	}
	txn.Deletes = slices.DeleteFunc(txn.Deletes, func(key string) bool { // a transaction may name a key only once
		return slices.ContainsFunc(txn.Puts, func(p store.Put) bool { return p.Key == key })
	})
	return txn, nil
}

// Open reports whether the hub itself pursues the claim.
func (r *Record) Open() bool { return r.Unwaited && r.State == Pending }

// Shorten reduces a request to its names and a digest; because otherwise the requests of many refused claims would fill the store.
func (r *Record) Shorten(req *sandboxv1.CreateSandboxRequest) {
	r.Digest = digest(req)
	r.Request = Marshal(&sandboxv1.CreateSandboxRequest{
		Namespace: req.GetNamespace(), Env: req.GetEnv(), Team: req.GetTeam(), User: req.GetUser(), ClaimKey: req.GetClaimKey(),
	})
}

func digest(req *sandboxv1.CreateSandboxRequest) []byte {
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	sum := sha256.Sum256(data)
	return sum[:]
}

// Same reports whether a request equals the record's.
func (r *Record) Same(req *sandboxv1.CreateSandboxRequest) (bool, error) {
	if len(r.Digest) > 0 {
		return bytes.Equal(r.Digest, digest(req)), nil
	}
	before, err := r.ParseRequest()
	return err == nil && proto.Equal(before, req), err
}

// Differing returns the parameters in which a request differs from the record's. It returns none for the record of a refused claim, which
// has only names.
func (r *Record) Differing(req *sandboxv1.CreateSandboxRequest) []string {
	before, err := r.ParseRequest()
	if err != nil || len(r.Digest) > 0 {
		return nil
	}
	return problem.Differing(before, req)
}

// ParseRequest parses the request. The request of an adopted record is empty until a retry sets it.
func (r *Record) ParseRequest() (*sandboxv1.CreateSandboxRequest, error) {
	req := &sandboxv1.CreateSandboxRequest{}
	return req, unmarshal(r.Request, req, "request")
}

// ParseDecision parses the routing decision on the claim.
func (r *Record) ParseDecision() (*sandboxv1.Decision, error) {
	d := &sandboxv1.Decision{}
	return d, unmarshal(r.Decision, d, "decision")
}

func unmarshal(data []byte, into proto.Message, what string) error {
	if err := proto.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the %s of a claim is %w: %w", what, ErrDamaged, err)
	}
	return nil
}

// Marshal encodes a message. It cannot fail: the messages came over the wire, so their strings are valid UTF-8.
func Marshal(m proto.Message) []byte {
	data, _ := proto.Marshal(m)
	return data
}
