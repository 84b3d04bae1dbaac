// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	// electionTTL is how long after the end of the leader another process can be elected.
	electionTTL = 6 * time.Second
	// campaignPause is the pause between two attempts to lead.
	campaignPause = 300 * time.Millisecond
)

func (e *Etcd) electionPrefix(election string) string {
	return e.options.Prefix + "/offices/" + e.options.Kind + "/" + election
}

// Lead implements Shared.
func (e *Etcd) Lead(ctx context.Context, election string, lead func(ctx context.Context)) error {
	for {
		err := e.campaign(ctx, election, lead)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed), errors.Is(err, ErrSetBack):
			return err
		}
		if err := e.wait(ctx, campaignPause); err != nil {
			return err
		}
	}
}

// campaign waits until it is elected and calls lead once. The leader is a key with a lease, which expires when this process ends.
func (e *Etcd) campaign(ctx context.Context, election string, lead func(ctx context.Context)) error {
	leave, err := e.enter()
	if err != nil {
		return err
	}
	leave()
	granting, cancel := context.WithTimeout(ctx, callTimeout)
	lease, err := e.client.Grant(granting, int64(electionTTL/time.Second))
	cancel()
	if err != nil {
		return explain(err)
	}
	session, err := concurrency.NewSession(e.client, concurrency.WithLease(lease.ID))
	if err != nil {
		return explain(err)
	}
	defer func() {
		session.Orphan()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		defer cancel()
		_, _ = e.client.Revoke(last, lease.ID) // if this fails, the lease expires
	}()
	held, lost := context.WithCancel(ctx)
	defer lost()
	defer context.AfterFunc(session.Ctx(), lost)()
	if err := concurrency.NewElection(session, e.electionPrefix(election)).Campaign(held, ""); err != nil {
		return explain(err)
	}
	lead(held)
	return nil
}

// Held reports whether any process leads or campaigns in an election of the hub, which means that a hub runs.
func (e *Etcd) Held(ctx context.Context) (bool, error) {
	response, err := e.read(ctx, e.options.Prefix+"/offices/", withPrefixOne()...)
	if err != nil {
		return false, err
	}
	return len(response.Kvs) > 0, nil
}
