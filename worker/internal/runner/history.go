// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/history"
)

// openHistory opens the file of terminal records. It waits if a process that is shutting down still uses the file. rotation is nil if the
// file is not encrypted.
func openHistory(
	ctx context.Context, o Options, registry prometheus.Registerer, local clock.WithTicker, times *apitime.Clock, log logr.Logger,
) (_ *history.History, rotation *store.Rotation, err error) {
	var sealer *envelope.Sealer
	if o.history.keyFile != "" {
		keys, err := envelope.OpenKeyFile(o.history.keyFile)
		if err != nil {
			return nil, nil, err
		}
		rotation = &store.Rotation{Keys: keys, Clock: local, Log: log.WithName("encryption")}
		sealer = envelope.New(keys)
	}
	var kept store.Store = store.NewMemory()
	if o.history.dir == "" {
		log.Info("Without --data-dir the records of ended sandboxes are lost when this process ends")
	} else {
		file, err := openStore(ctx, local, filepath.Join(o.history.dir, "history.db"), sealer, log)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the history below --data-dir: %w%s", err, adviceOn(err))
		}
		kept = file
		if rotation != nil {
			rotation.Files = []store.Sealed{file}
		}
	}
	h, err := history.Open(ctx, history.Options{
		Store: kept, Time: times, Clock: local, Retention: o.history.retention, MaxRecords: o.history.records,
		Metrics: registry, Log: log.WithName("history"),
	})
	if err != nil {
		return nil, nil, errors.Join(err, kept.Close())
	}
	log.Info("Keeping the records of ended sandboxes", "records", h.Len(), "retention", o.history.retention.String(), "most",
		o.history.records)
	return h, rotation, nil
}

// adviceOn returns what to do about an encrypted file that cannot be opened.
func adviceOn(err error) string {
	if errors.Is(err, store.ErrEncrypted) || errors.Is(err, envelope.ErrNoKey) || errors.Is(err, envelope.ErrWrongKey) {
		return "; give --encryption-key-file its key, or move the file away: the other replicas have copies of its records"
	}
	return ""
}

// rotating runs a rotation on every replica, because each has a file of its own.
type rotating struct{ *store.Rotation }

// Start implements manager.Runnable.
func (r rotating) Start(ctx context.Context) error { return r.Run(ctx) }

// NeedLeaderElection returns false.
func (rotating) NeedLeaderElection() bool { return false }

// addRotation keeps the history encrypted with its first key.
func (w *assembly) addRotation(context.Context) error {
	if w.rotation == nil {
		return nil
	}
	stale := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_history_stale_entries",
		Help: "Records of ended sandboxes that are encrypted with another key than the first of --encryption-key-file.",
	}, func() float64 { return float64(w.rotation.Stale()) })
	if err := w.registry.Register(stale); err != nil {
		return fmt.Errorf("registering metrics of encryption: %w", err)
	}
	if err := w.mgr.Add(rotating{w.rotation}); err != nil {
		return fmt.Errorf("adding the rotation of keys: %w", err)
	}
	return nil
}

// addPeers shares histories between the replicas of this worker.
func (w *assembly) addPeers(context.Context) error {
	if w.history.peerListen == "" {
		return nil
	}
	log := w.log.WithName("history")
	credentials, err := w.loadCredentials()
	if err != nil {
		return fmt.Errorf("loading the certificate for other replicas: %w", err)
	}
	w.peers, err = history.NewPeers(history.PeerOptions{
		History: w.records, ClusterID: w.clusterID, Credentials: credentials, Leader: w.lock, Listen: w.history.peerListen,
		Clock: w.local, Metrics: w.registry, Log: log,
	})
	if err != nil {
		return fmt.Errorf("building the copies of the history: %w", err)
	}
	if err := w.mgr.Add(w.peers); err != nil {
		return fmt.Errorf("adding the copies of the history: %w", err)
	}
	err = w.mgr.AddReadyzCheck("history", func(*http.Request) error {
		if !w.peers.Caught() {
			return errors.New("the leader's records of ended sandboxes are not all here yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness check of the history: %w", err)
	}
	return nil
}

// lockWait is how long the previous process may take to release its file.
const lockWait = 15 * time.Second

// openStore opens the file, and moves a damaged one aside: a cluster without a worker would be worse than one without its history, which
// the other replicas have as well.
func openStore(ctx context.Context, clk clock.PassiveClock, path string, sealer *envelope.Sealer, log logr.Logger) (*store.Bolt, error) {
	for until := clk.Now().Add(lockWait); ; {
		file, err := store.OpenSealed(path, history.Kind, sealer)
		switch {
		case errors.Is(err, store.ErrDamaged):
			aside := path + ".damaged-" + clk.Now().UTC().Format("20060102T150405")
			log.Error(err, "The history is damaged; beginning a new one", "kept as", aside)
			if err := durable.Rename(path, aside); err != nil {
				return nil, fmt.Errorf("putting the damaged history aside: %w", err)
			}
		case !errors.Is(err, store.ErrLocked) || clk.Now().After(until) || ctx.Err() != nil:
			return file, err
		}
	}
}
