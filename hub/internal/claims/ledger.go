// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/telemetry"
)

// ledger reads and writes records. It decides nothing.
type ledger struct {
	store store.Store
}

// held is a record with the revision it was read or written at; the zero value is the absence of one.
type held struct {
	record   *record
	revision uint64
}

func (l *ledger) load(ctx context.Context, hash string) (held, error) {
	entry, ok, err := l.store.Get(ctx, claimPrefix+hash)
	if err != nil || !ok {
		return held{}, wrapLoad(err)
	}
	r := &record{}
	if err := json.Unmarshal(entry.Value, r); err != nil {
		return held{}, fmt.Errorf("claim %s in the store is damaged: %w", hash, err)
	}
	if err := timestamppb.New(r.CreatedAt).CheckValid(); err != nil {
		return held{}, fmt.Errorf("claim %s in the store is damaged: %w", hash, err)
	}
	return held{r, entry.Revision}, nil
}

func wrapLoad(err error) error {
	if err != nil {
		return fmt.Errorf("reading claim: %w", err)
	}
	return nil
}

// save replaces old by new, and carries extra along in the same transaction.
func (l *ledger) save(ctx context.Context, hash string, old held, new *record, extra ...store.Put) (held, error) {
	return l.write(ctx, hash, old, new, false, extra...)
}

// saveLazily is save for what nobody waits for.
func (l *ledger) saveLazily(ctx context.Context, hash string, old held, new *record, extra ...store.Put) (held, error) {
	return l.write(ctx, hash, old, new, true, extra...)
}

func (l *ledger) write(ctx context.Context, hash string, old held, new *record, lazy bool, extra ...store.Put) (_ held, err error) {
	ctx, span := telemetry.Start(ctx, "ledger write")
	defer func() { telemetry.End(span, err) }()
	if span.IsRecording() {
		span.SetAttributes(telemetry.KeyHash.String(hash), telemetry.State.String(string(new.State)),
			telemetry.Cluster.String(new.Cluster), telemetry.Attempt.Int(int(new.Attempt)))
	}
	txn, err := plan(hash, old, new)
	if err != nil {
		return held{}, err
	}
	txn.Puts, txn.Lazy = append(txn.Puts, extra...), lazy
	revision, err := l.store.Commit(ctx, txn)
	if err != nil {
		return held{}, fmt.Errorf("writing claim: %w", err)
	}
	return held{new, revision}, nil
}

// drop removes a record with its indexes.
func (l *ledger) drop(ctx context.Context, hash string, old held) error {
	txn, err := plan(hash, old, nil)
	if err != nil {
		return err
	}
	if _, err := l.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("dropping claim: %w", err)
	}
	return nil
}

// byID finds what is known of a sandbox id: the zero value, at revision 0, when it has no key or is not known.
func (l *ledger) byID(ctx context.Context, id string) (r idRecord, revision uint64, err error) {
	entry, ok, err := l.store.Get(ctx, idPrefix+id)
	if err != nil || !ok {
		return idRecord{}, 0, wrapLoad(err)
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return idRecord{}, 0, fmt.Errorf("sandbox %s in the store is damaged: %w", id, err)
	}
	return r, entry.Revision, nil
}

// endedByID answers the terminal record of a sandbox with a key, or nil.
func (l *ledger) endedByID(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	r, _, err := l.byID(ctx, id)
	if err != nil || len(r.Ended) == 0 {
		return nil, err
	}
	s := &sandboxv1.Sandbox{}
	return s, unmarshal(r.Ended, s, "terminal record")
}

// terminal answers how a claim ended: its sandbox's own record if it has arrived, else what the hub wrote itself.
func (l *ledger) terminal(ctx context.Context, r *record) (*sandboxv1.Sandbox, error) {
	if r.SandboxID != "" {
		if s, err := l.endedByID(ctx, r.SandboxID); s != nil || err != nil {
			return s, err
		}
	}
	s := &sandboxv1.Sandbox{}
	return s, unmarshal(r.Terminal, s, "terminal record")
}

func putID(id string, r idRecord) (store.Put, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return store.Put{}, fmt.Errorf("encoding sandbox %s: %w", id, err)
	}
	return store.Put{Key: idPrefix + id, Value: value}, nil
}
