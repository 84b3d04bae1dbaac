// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	recoveryPoll = time.Second
	// maxAdopting bounds the concurrent writes for one key index, or one batch of ends. The store groups them.
	maxAdopting = 64
)

// recovered returns an error while the ledger waits for keys.
func (s *Service) recovered(ctx context.Context) error {
	if !s.recovery.Recovering() {
		return nil
	}
	registered := s.fleet.ClusterIDs()
	if err := s.recovery.Settle(ctx, registered); err != nil {
		return storeFailed(err)
	}
	if !s.recovery.Recovering() {
		s.log.Info("Recovered: the claim keys of all clusters are known")
		return nil
	}
	p := principal.From(ctx)
	unheard := slices.DeleteFunc(s.recovery.Unheard(registered), func(id string) bool { return !p.SeesCluster(id) })
	return problem.New(problem.Recovering,
		"the hub has lost claim keys and waits for those of: %s; claims without a key are served",
		cmp.Or(strings.Join(unheard, ", "), "other clusters")).WithRetryAfter(problem.RetrySoon)
}

// startPatience is the time after the start during which calls about claim keys wait for the Hello of each registered cluster. The Hello
// shows whether the ledger was once further.
const startPatience = 5 * time.Second

// awaitMemories waits until every registered cluster has sent its Hello, or until startPatience is over. A cluster that returns later
// starts a recovery then.
func (s *Service) awaitMemories(ctx context.Context) {
	for s.clock.Since(s.started) < startPatience && len(s.fleet.Unmet()) > 0 {
		if wallclock.Sleep(ctx, s.clock, settlePause) != nil {
			return
		}
	}
}

// OnKeys applies a cluster's key index. It ends Pods whose claims ended or moved to another attempt while the cluster was away, or before a
// late write created the Pod. Until the cluster has been heard, it adopts keys that the ledger may have lost.
func (s *Service) OnKeys(cluster string, holders []*federationv1.KeyHolder) {
	recovers := !s.recovery.Whole()
	s.background.RetryUntilDone(&s.indexes, cluster, mostIndexPause, s.forgets(cluster), func(ctx context.Context) error {
		err := s.takeIndex(ctx, cluster, holders, recovers)
		if err != nil && ctx.Err() == nil {
			s.log.Info("Could not look through a cluster's keys; it is tried again", "cluster", cluster, "error", err.Error())
		}
		return err
	})
}

// forgets returns a function that reports whether an operator has forgotten the cluster.
func (s *Service) forgets(cluster string) func() bool {
	return func() bool { return s.fleet.Forgotten(cluster, "") }
}

// takeIndex applies a key index. recovers says that it arrived during a recovery. An index from before does not count for the recovery;
// because the cluster was not asked for all keys, and none was adopted while the loss was unknown. The cluster sends another index.
func (s *Service) takeIndex(ctx context.Context, cluster string, holders []*federationv1.KeyHolder, recovers bool) error {
	strays, err := s.adoptAll(ctx, s.sender(cluster), holders)
	if err == nil && recovers {
		err = s.recovery.Heard(ctx, cluster)
	}
	if ending := s.endAll(ctx, cluster, strays); ending != nil { // retried, see endings
		s.log.Info("A cluster has not confirmed all that it has to end", "cluster", cluster, "error", ending.Error())
	}
	return err
}

func (s *Service) sender(cluster string) sender {
	return sender{
		cluster: cluster, uid: s.fleet.Registration(cluster), missing: len(s.recovery.Unheard([]string{cluster})) > 0,
		epoch: s.recovery.Epoch(), lastLost: s.recovery.LastLost(),
	}
}

// adoptAll compares every holder with its key's record and returns those that must end.
func (s *Service) adoptAll(ctx context.Context, from sender, holders []*federationv1.KeyHolder) ([]*federationv1.KeyHolder, error) {
	var mu sync.Mutex
	var strays, lies, doubts, unread []*federationv1.KeyHolder
	var group errgroup.Group
	group.SetLimit(maxAdopting)
	for _, holder := range holders {
		group.Go(func() error {
			bears, err := s.applyHolder(ctx, from, holder)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && bears == unsent:
				lies = append(lies, holder)
			case err == nil && bears == unproven:
				doubts = append(doubts, holder)
			case err == nil && bears == damaged:
				unread = append(unread, holder)
			case bears == stray && !holder.GetEnded():
				strays = append(strays, holder)
			}
			return err
		})
	}
	err := group.Wait()
	if len(lies) > 0 {
		s.reportUnsent(from.cluster, len(lies), lies[0])
	}
	if len(doubts) > 0 {
		s.reportUnproven(from.cluster, len(doubts), doubts[0])
	}
	if len(unread) > 0 {
		s.log.Info("A cluster names claims whose records are damaged; their keys are neither returned nor claimed", "cluster", from.cluster,
			"claims", len(unread), "claimKey", unread[0].GetKeyHash(), "sandbox", unread[0].GetSandboxId())
	}
	return strays, err
}

// reportUnsent logs and counts claims that a cluster names but that this hub did not send to it.
func (s *Service) reportUnsent(cluster string, n int, example *federationv1.KeyHolder) {
	s.metrics.unsent.WithLabelValues(cluster).Add(float64(n))
	s.fleet.NamedUnsent(cluster, n)
	s.log.Info("A cluster names claims that this hub did not send to it; they count for nothing", "cluster", cluster, "claims", n,
		"claimKey", validate.Clip(example.GetKeyHash()), "attempt", example.GetAttempt(), "sandbox", validate.Clip(example.GetSandboxId()))
}

// reportUnproven logs and counts claims that a cluster names without a proof.
func (s *Service) reportUnproven(cluster string, n int, example *federationv1.KeyHolder) {
	s.metrics.unproven.WithLabelValues(cluster).Add(float64(n))
	s.log.Info("A cluster names claims without a proof that this hub sent them; their keys are neither returned nor claimed",
		"cluster", cluster, "claims", n, "claimKey", validate.Clip(example.GetKeyHash()), "attempt", example.GetAttempt(),
		"sandbox", validate.Clip(example.GetSandboxId()))
}

// verify checks the proof of an attempt.
func (s *Service) verify(from sender, hash string, attempt int32, proof string) recovery.Verdict {
	return s.recovery.Verify(recovery.Dispatch{Cluster: from.cluster, UID: from.uid, KeyHash: hash, Attempt: attempt}, proof)
}

// applyHolder compares a holder with its key's record, and adopts the holder if its bearing requires it. A damaged record stays, and
// prevents that its key is claimed. If the record's request or the sandbox's entry is damaged, the key is recorded as unproven; because
// nothing else would prevent a claim.
func (s *Service) applyHolder(ctx context.Context, from sender, holder *federationv1.KeyHolder) (bearing, error) {
	if !wellFormed(from.cluster, holder) {
		return unsent, nil
	}
	verdict := s.verify(from, holder.GetKeyHash(), holder.GetAttempt(), holder.GetProof())
	for {
		h, err := s.ledger.Load(ctx, holder.GetKeyHash())
		if errors.Is(err, ledger.ErrDamaged) {
			return damaged, nil
		}
		if err != nil {
			return "", err
		}
		bears := bearingOf(h.Record, from, holder.GetAttempt(), verdict)
		if bears == newer || bears == unproven && h.Record != nil {
			bears, err = s.checkMove(ctx, from, holder.GetKeyHash(), h.Record, bears)
		}
		switch {
		case err != nil:
		case bears == unknownKey || bears == newer || bears == unproven:
			bears, err = s.adopt(ctx, from.cluster, holder, h, bears)
		case bears == late:
			bears, err = stray, s.closeAttempt(ctx, holder.GetKeyHash(), h)
		case bears == beside:
			s.log.Info("A Pod has a claim key that is not its own now; a ledger that was lost may have returned it, so it stays",
				"cluster", from.cluster, "claimKey", holder.GetKeyHash(), "sandbox", holder.GetSandboxId())
		}
		if errors.Is(err, ledger.ErrDamaged) {
			_, err = s.adopt(ctx, from.cluster, holder, h, unproven)
			bears = damaged
		}
		if !errors.Is(err, store.ErrConflict) {
			return bears, err
		}
	}
}

// wellFormed reports whether a holder can name a claim: it has the hash of a key and, if it has a sandbox id, an id of its own cluster.
func wellFormed(cluster string, holder *federationv1.KeyHolder) bool {
	if !ledger.IsKeyHash(holder.GetKeyHash()) {
		return false
	}
	if holder.GetSandboxId() == "" {
		return holder.GetPodUid() == "" && !holder.GetEnded()
	}
	from, ok := validate.ClusterOf(holder.GetSandboxId())
	return ok && from == cluster
}

// checkMove decides whether a key moves to the cluster that names a later attempt than the record. It does not move if the request forbids
// the cluster, or while the cluster in the record still holds it.
func (s *Service) checkMove(ctx context.Context, from sender, hash string, r *ledger.Record, bears bearing) (bearing, error) {
	if r.Adopted {
		return bears, nil // both are reports of a cluster
	}
	req, err := r.ParseRequest()
	if err != nil {
		return "", err
	}
	if !allows(req, from.cluster) {
		return unsent, nil
	}
	if r.State != ledger.Pending || r.Cluster == from.cluster || s.fleet.Forgotten(r.Cluster, r.ClusterUID) {
		return bears, nil
	}
	switch _, err := s.lookup(ctx, hash, r); {
	case err == nil:
		return unsent, nil
	case reasonOf(err) == problem.NotFound:
		return bears, nil
	default:
		return "", fmt.Errorf("asking for the earlier attempt of key %s: %w", hash, err)
	}
}

// adopt writes the key's record from a holder. It replaces an older record.
func (s *Service) adopt(
	ctx context.Context, cluster string, holder *federationv1.KeyHolder, h ledger.Held, bears bearing,
) (bearing, error) {
	next := s.adopted(cluster, holder)
	var extra []store.Put
	if bears == unproven {
		next.State, next.SandboxID = ledger.Unproven, ""
	} else if err := s.recovery.Saw(ctx, holder.GetAttempt()); err != nil {
		return "", err
	}
	if next.SandboxID != "" {
		known, _, err := s.ledger.ByID(ctx, next.SandboxID)
		if err != nil {
			return "", err
		}
		if known.KeyHash != "" && known.KeyHash != holder.GetKeyHash() {
			return unsent, nil // a Pod has one key
		}
		if len(known.Ended) > 0 {
			next.State = ledger.Ended
		}
		put, err := ledger.PutID(next.SandboxID, ledger.IDRecord{KeyHash: holder.GetKeyHash(), Ended: known.Ended})
		if err != nil {
			return "", err
		}
		extra = append(extra, put)
	}
	before := h.Record
	if before != nil && before.SandboxID != "" && before.SandboxID != next.SandboxID {
		extra = append(extra, ledger.ExpireID(next.ExpireAt, before.SandboxID))
	}
	if _, err := s.ledger.Save(ctx, holder.GetKeyHash(), h, next, extra...); err != nil {
		return "", fmt.Errorf("adopting the key of sandbox %s: %w", holder.GetSandboxId(), err)
	}
	if bears == unproven {
		return bears, nil
	}
	s.metrics.adopted.Inc()
	if before != nil && before.State != ledger.Unproven && sameLedger(before.Attempt, next.Attempt) {
		// A Pod of the attempt that was abandoned for this one was never returned.
		s.endAfter(ending{cluster: before.Cluster, hash: holder.GetKeyHash(), attempt: before.Attempt})
	}
	return bears, nil
}

// closeAttempt advances a refused claim to the next attempt, so that no replica records a sandbox of the refused attempt while its cluster
// ends it.
func (s *Service) closeAttempt(ctx context.Context, hash string, h ledger.Held) error {
	next := *h.Record
	next.Attempt = nextAttempt(h.Record, s.recovery.Epoch())
	if _, err := s.ledger.Save(ctx, hash, h, &next); err != nil {
		return fmt.Errorf("closing a refused attempt of key %s: %w", hash, err)
	}
	return nil
}

// adopted returns the record of a claim from its holder. A running claim is Pending, so that a retry joins it. A claim with a Pod may have
// been returned, and is never claimed again.
func (s *Service) adopted(cluster string, holder *federationv1.KeyHolder) *ledger.Record {
	now := s.clock.Now()
	r := &ledger.Record{
		Cluster: cluster, ClusterUID: s.fleet.Registration(cluster), Adopted: true, Attempt: holder.GetAttempt(),
		State: ledger.Pending, CreatedAt: now, Deadline: now, ExpireAt: now.Add(s.retention),
	}
	if holder.GetPodUid() != "" || holder.GetEnded() {
		r.State, r.SandboxID = ledger.Returned, holder.GetSandboxId()
	}
	return r
}

func (s *Service) endAll(ctx context.Context, cluster string, strays []*federationv1.KeyHolder) error {
	var errs []error
	for _, holder := range strays {
		s.log.Info("Ending a sandbox that is not its claim's any more", "cluster", cluster, "claimKey", holder.GetKeyHash(),
			"sandbox", holder.GetSandboxId())
		errs = append(errs, s.cancelAt(ctx, cluster, holder.GetKeyHash(), holder.GetAttempt()))
	}
	return errors.Join(errs...)
}

// differing compares a request with an adopted sandbox and returns the parameters that differ, among those that the sandbox shows.
func differing(r *sandboxv1.CreateSandboxRequest, s *sandboxv1.Sandbox) []string {
	return problem.Differing(
		&sandboxv1.CreateSandboxRequest{User: r.GetUser(), Env: r.GetEnv(), Labels: r.GetLabels(), Metadata: r.GetMetadata()},
		&sandboxv1.CreateSandboxRequest{User: s.GetUser(), Env: s.GetEnv(), Labels: s.GetLabels(), Metadata: s.GetMetadata()})
}

// storeRequest stores the request of an adopted claim. From then on retries are compared with the whole request. It fails only if another
// replica has written the record.
func (k *keyed) storeRequest(ctx context.Context) error {
	if !k.held.Record.Adopted {
		return nil
	}
	next := *k.held.Record
	next.Request, next.Adopted = ledger.Marshal(k.flight.request), false
	saved, err := k.service.ledger.Save(ctx, k.flight.hash, k.held, &next)
	if errors.Is(k.service.failed(err), errRecordChanged) {
		return errRecordChanged
	}
	if err != nil {
		k.service.log.Info("Could not record the request of an adopted claim; the next retry does", "claimKey", k.flight.hash,
			"error", err.Error())
		return nil
	}
	k.held = saved
	k.flight.prove()
	return nil
}

// endForgotten ends a claim whose sandbox is in a cluster that an operator has forgotten.
func (k *keyed) endForgotten(ctx context.Context) (*sandboxv1.Sandbox, error) {
	s, now := k.service, k.service.clock.Now()
	next := *k.held.Record
	next.State, next.ExpireAt = ledger.Ended, now.Add(s.retention)
	next.Terminal = ledger.Marshal(endForgotten(k.flight.request, &next, now))
	saved, err := s.ledger.Save(ctx, k.flight.hash, k.held, &next)
	if err != nil {
		return nil, s.failed(err)
	}
	k.held = saved
	return s.ledger.Terminal(ctx, &next)
}
