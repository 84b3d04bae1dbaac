// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

const (
	protocol         = 1
	defaultHeartbeat = 3 * time.Second
	// These bound the interval that a hub may ask for. More heartbeats would keep the worker busy; with fewer the hub would consider it dead.
	minHeartbeat, maxHeartbeat = 100 * time.Millisecond, 10 * time.Second
)

// refused is the error of a stream that the hub did not accept.
type refused struct {
	Reason  string
	Message string
}

func (r *refused) Error() string {
	return fmt.Sprintf("the hub refused the stream: %s: %s", r.Reason, r.Message)
}

var errNotLeading = errors.New("the hub has seen a higher incarnation, and this worker's lease has lapsed")

var errProtocol = errors.New("this worker does not support the hub's protocol version")

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// hello returns the worker's Hello. It identifies the worker beyond what the certificate shows.
func (a *Agent) hello(ctx context.Context) (*federationv1.Hello, error) {
	if a.clusterUID == "" {
		ns := &corev1.Namespace{}
		if err := a.reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, ns); err != nil {
			return nil, fmt.Errorf("reading the cluster's uid: %w", err)
		}
		a.clusterUID = string(ns.UID)
	}
	began := a.opts.Clock.Now()
	version, err := a.resourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	latency := a.opts.Clock.Since(began)
	a.streams++
	hello := &federationv1.Hello{
		Protocol:        protocol,
		Version:         a.opts.Version,
		ClusterUid:      a.clusterUID,
		Term:            a.term,
		Incarnation:     a.Incarnation(),
		Stream:          a.streams,
		ResourceVersion: version,
		Unacknowledged:  slices.Clone(a.unacknowledged),
		Ledger:          a.ledger.Load(),
		Trust:           a.opts.Identity.Trust(),
		Waits:           true,
	}
	if a.opts.Host != "" {
		hello.Hosting = &federationv1.Hosting{Host: a.opts.Host, Latency: durationpb.New(latency)}
	}
	if a.reported != nil {
		hello.Acknowledged, hello.Digest = a.sequence, a.reported.Digest()
	}
	return hello, nil
}

// welcome holds the settings that a stream takes from the hub's Welcome.
type welcome struct {
	interval time.Duration // of heartbeats
	deltas   bool          // the hub has the view that the Hello names
}

// introduce exchanges the messages from Hello to Begin. It calls hear for each heartbeat of a hub that lets other workers report first.
func (a *Agent) introduce(ctx context.Context, stream link.Stream, hello *federationv1.Hello, hear func()) (welcome, error) {
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
		return welcome{}, broken(stream, err)
	}
	frame, err := stream.Recv()
	for err == nil && frame.GetHeartbeatAck() != nil {
		hear()
		frame, err = stream.Recv()
	}
	if err != nil {
		return welcome{}, fmt.Errorf("waiting for the hub's welcome: %w", err)
	}
	if r := frame.GetRefused(); r != nil {
		return welcome{}, &link.RetryAfterError{
			Err:   &refused{Reason: r.GetReason(), Message: r.GetMessage()},
			After: r.GetRetryAfter().AsDuration(),
		}
	}
	w := frame.GetWelcome()
	if w == nil || w.GetProtocol() != protocol {
		return welcome{}, &link.RetryAfterError{Err: fmt.Errorf("%w: %d", errProtocol, w.GetProtocol()), After: link.MaxBackoff}
	}
	if w.GetClusterId() != a.opts.ClusterID {
		return welcome{}, a.identityError(w.GetClusterId())
	}
	if w.GetEtcdRestored() {
		a.opts.Sandboxes.DistrustActivity()
		a.suspectIdle(true)
	}
	if err := a.replaceSuspects(ctx); err != nil {
		return welcome{}, err
	}
	if floor, raise := decideFloor(a.Incarnation(), a.term, w.GetHighestIncarnation(), w.GetHighestTerm()); raise {
		n, err := a.store.next(ctx, floor)
		if err != nil {
			return welcome{}, err
		}
		// The hub may have seen the number of a later leader. With a higher number, this worker's calls under way would look newer than the
		// answers of that leader.
		if a.armed() && !a.opts.Inventory.Serving() {
			return welcome{}, errNotLeading
		}
		a.opts.Log.Info("the hub has seen a higher incarnation, raised ours", "incarnation", n, "seen", floor)
		a.setIncarnation(n)
	}
	if err := a.allot(ctx, w.GetAllotments()); err != nil {
		return welcome{}, err
	}
	a.arm()
	if !a.awaitServing(ctx) { // a complete report needs the informers, and the current Pods
		return welcome{}, ctx.Err()
	}
	a.recovers = w.GetRecovering()
	a.remember(w.GetLedger())
	begin := &federationv1.Begin{Incarnation: a.Incarnation()}
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: begin}}); err != nil {
		return welcome{}, broken(stream, err)
	}
	out := welcome{interval: defaultHeartbeat}
	if interval := w.GetHeartbeatInterval().AsDuration(); interval > 0 {
		out.interval = min(max(interval, minHeartbeat), maxHeartbeat)
	}
	out.deltas = w.GetDeltas() && a.reported != nil && begin.GetIncarnation() == hello.GetIncarnation()
	return out, nil
}

// broken returns the cause of a failed Send, which gRPC reports only from Recv.
func broken(stream link.Stream, err error) error {
	for {
		if _, cause := stream.Recv(); cause != nil {
			return errors.Join(cause, err)
		}
	}
}
