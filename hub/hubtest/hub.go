// SPDX-License-Identifier: Apache-2.0

package hubtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/sandboxes"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/store"
)

// Stream is the hub's end of a worker's stream.
type Stream = grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]

// Options configure a hub. All up to Log are required.
type Options struct {
	Clock       clock.WithTicker
	Listener    net.Listener
	Credentials *link.Credentials
	Claims      store.Store
	Registry    store.Store
	Log         logr.Logger
	Rand        func() uint64
	Retention   time.Duration
	// Intercept runs between the link and the hub.
	Intercept func(Stream) Stream
	// Peers connects the hub to other replicas, with which it shares Claims and Registry; nil: there are none.
	Peers *Peers
}

// Hub is a running hub.
type Hub struct {
	*claims.Service
	Sandboxes *sandboxes.Service
	Fleet     *fleet.Fleet
	Recovery  *recovery.State

	workers *attach.Server
	link    *grpc.Server
	stores  []store.Store
	end     context.CancelFunc
	running sync.WaitGroup
}

// Start builds a hub and runs it until Stop.
func Start(ctx context.Context, o Options) (*Hub, error) {
	h := &Hub{stores: []store.Store{o.Claims, o.Registry}}
	var err error
	if h.Recovery, err = recovery.Open(ctx, o.Claims, o.Registry, o.Clock); err != nil {
		return nil, fmt.Errorf("pairing the hub's files: %w", err)
	}
	name := "hub"
	if o.Peers != nil {
		name = o.Peers.Name
	}
	h.Fleet, err = fleet.New(ctx, fleet.Options{
		Clock: o.Clock, Registry: fleet.NewRegistry(o.Registry), HubID: name, Version: "sim", Log: o.Log.WithName("fleet"),
		Recovering: func(clusterID string) bool { return len(h.Recovery.Unheard([]string{clusterID})) > 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("starting the fleet: %w", err)
	}
	workers := attach.NewServer(attach.Options{
		Fleet: h.Fleet, Clock: o.Clock, Log: o.Log.WithName("attach"),
		Ledger: recovery.Marks{State: h.Recovery, Clock: o.Clock, Log: o.Log.WithName("recovery")},
	})
	h.workers = workers
	reach := h.newPeers(o)
	settings := claims.Options{
		Fleet: h.Fleet, Dispatcher: reach, Store: o.Claims, Recovery: h.Recovery, Clock: o.Clock, Log: o.Log.WithName("claims"),
		Retention: o.Retention, Rand: o.Rand,
	}
	if o.Peers != nil {
		settings.Replica, settings.Live = name, o.Peers.live
	}
	h.Service = claims.New(settings)
	h.Sandboxes = sandboxes.New(sandboxes.Options{
		Fleet: h.Fleet, Dispatcher: reach, Claims: h.Service, Feeds: reach, Clock: o.Clock, Log: o.Log.WithName("sandboxes"),
	})
	workers.Handle(h.Service)
	h.link = link.NewServer(o.Credentials, nil, o.Log.WithName("link"))
	federationv1.RegisterLinkServer(h.link, intercepted{workers, o.Intercept})
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	h.end = end
	h.run(o.Log, func() error { return h.link.Serve(o.Listener) })
	h.run(o.Log, func() error { return h.Fleet.Run(running) })
	h.run(o.Log, func() error { return h.Run(running) })
	if o.Peers != nil {
		h.run(o.Log, func() error { return reach.Serve(running, o.Peers.Listener) })
		h.run(o.Log, func() error { return reach.Run(running) })
	}
	return h, nil
}

func (h *Hub) run(log logr.Logger, part func() error) {
	h.running.Go(func() {
		if err := part(); err != nil {
			log.Error(err, "A part of the hub has ended")
		}
	})
}

// Waiting counts the hub's calls in flight and its background work.
func (h *Hub) Waiting() int { return h.InFlight() + h.workers.InFlight() }

// Stop stops the hub. To kill it, take its disks and its network away first.
func (h *Hub) Stop() error {
	h.end()
	h.Sandboxes.CloseWatches()
	h.link.Stop()
	h.running.Wait()
	h.Close()
	var errs []error
	for _, s := range h.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// intercepted lets a test intercept the link.
type intercepted struct {
	*attach.Server
	intercept func(Stream) Stream
}

// Attach implements federationv1.LinkServer.
func (i intercepted) Attach(stream Stream) error {
	if i.intercept != nil {
		stream = i.intercept(stream)
	}
	return i.Server.Attach(stream)
}
