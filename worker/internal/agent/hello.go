// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/link"
)

const (
	protocol         = 1
	defaultHeartbeat = 3 * time.Second
)

// Refused is a stream that the hub did not take.
type Refused struct {
	Reason  string
	Message string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("the hub refused the stream: %s: %s", r.Reason, r.Message)
}

var errProtocol = errors.New("the hub does not speak this worker's protocol")

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// hello says who we are, as far as the certificate doesn't.
func (a *Agent) hello(ctx context.Context) (*federationv1.Hello, error) {
	if a.clusterUID == "" {
		ns := &corev1.Namespace{}
		if err := a.reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, ns); err != nil {
			return nil, fmt.Errorf("reading the cluster's uid: %w", err)
		}
		a.clusterUID = string(ns.UID)
	}
	version, err := a.resourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	a.streams++
	return &federationv1.Hello{
		Protocol:        protocol,
		Version:         a.opts.Version,
		ClusterUid:      a.clusterUID,
		Term:            a.term,
		Incarnation:     a.Incarnation(),
		Stream:          a.streams,
		ResourceVersion: version,
	}, nil
}

// resourceVersion is where the cluster's etcd is now: what an uncached list of anything returns.
func (a *Agent) resourceVersion(ctx context.Context) (uint64, error) {
	envs := &v1alpha1.SandboxEnvList{}
	if err := a.reader.List(ctx, envs, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	n, err := strconv.ParseUint(envs.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	return n, nil
}

// introduce goes from Hello to Begin. It returns the interval of heartbeats.
func (a *Agent) introduce(ctx context.Context, stream link.Stream, hello *federationv1.Hello) (time.Duration, error) {
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
		return 0, broken(stream, err)
	}
	frame, err := stream.Recv()
	if err != nil {
		return 0, fmt.Errorf("waiting for the hub's welcome: %w", err)
	}
	if r := frame.GetRefused(); r != nil {
		return 0, &link.RetryAfterError{
			Err:   &Refused{Reason: r.GetReason(), Message: r.GetMessage()},
			After: r.GetRetryAfter().AsDuration(),
		}
	}
	welcome := frame.GetWelcome()
	if welcome == nil || welcome.GetProtocol() != protocol {
		return 0, &link.RetryAfterError{Err: fmt.Errorf("%w: %d", errProtocol, welcome.GetProtocol()), After: link.MaxBackoff}
	}
	if welcome.GetClusterId() != a.opts.ClusterID {
		return 0, a.identityError(welcome.GetClusterId())
	}
	if floor, raise := decideFloor(a.Incarnation(), a.term, welcome.GetHighestIncarnation(), welcome.GetHighestTerm()); raise {
		n, err := a.store.next(ctx, floor)
		if err != nil {
			return 0, err
		}
		a.opts.Log.Info("the hub has seen a higher incarnation, raised ours", "incarnation", n, "seen", floor)
		a.setIncarnation(n)
	}
	if welcome.GetEtcdRestored() {
		if err := a.replaceIdle(ctx); err != nil {
			return 0, err
		}
	}
	a.recovers = welcome.GetRecovering()
	begin := &federationv1.Begin{Incarnation: a.Incarnation()}
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: begin}}); err != nil {
		return 0, broken(stream, err)
	}
	if interval := welcome.GetHeartbeatInterval().AsDuration(); interval > 0 {
		return interval, nil
	}
	return defaultHeartbeat, nil
}

// broken finds out why a Send failed: gRPC tells only Recv.
func broken(stream link.Stream, err error) error {
	for {
		if _, cause := stream.Recv(); cause != nil {
			return errors.Join(cause, err)
		}
	}
}
