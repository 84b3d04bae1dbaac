// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/telemetry"
)

// metrics are the metrics of one store. They are observed once per group.
type metrics struct {
	file         prometheus.Labels
	transactions *prometheus.CounterVec
	seconds      prometheus.Histogram
	batch        prometheus.Histogram
}

func newMetrics(kind string) *metrics {
	file := prometheus.Labels{"file": kind}
	return &metrics{
		file: file,
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_store_transactions_total", ConstLabels: file,
			Help: "Transactions by what became of them: committed, conflict (nothing was written), failed.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atoll_hub_store_commit_seconds", ConstLabels: file,
			Help:    "Time of one commit to the disk, of all transactions that were grouped in it.",
			Buckets: telemetry.WriteSeconds,
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atoll_hub_store_batch_transactions", ConstLabels: file,
			Help:    "Transactions that were grouped in one commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
	}
}

func (m *metrics) committed(took time.Duration, results []result) {
	m.seconds.Observe(took.Seconds())
	m.batch.Observe(float64(len(results)))
	for _, r := range results {
		switch {
		case r.err == nil:
			m.transactions.WithLabelValues("committed").Inc()
		case errors.Is(r.err, ErrConflict):
			m.transactions.WithLabelValues("conflict").Inc()
		default:
			m.transactions.WithLabelValues("failed").Inc()
		}
	}
}

// Register registers the file's metrics, labelled with its kind.
func (b *Bolt) Register(registry prometheus.Registerer) error {
	m := b.committer.metrics
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_hub_store_file_bytes", ConstLabels: prometheus.Labels{"file": b.kind}, Help: "Size of the store's file.",
	}, b.size)
	return errors.Join(m.register(registry, b.Failure), registry.Register(size), registry.Register(b.counts.gauge(b.kind)))
}

// register registers the metrics that files and etcd stores have in common.
func (m *metrics) register(registry prometheus.Registerer, failure func() error) error {
	available := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_hub_store_available", ConstLabels: m.file,
		Help: "1 unless the last write failed, or the last call to etcd. At 0 claims with a key fail.",
	}, func() float64 {
		if failure() != nil {
			return 0
		}
		return 1
	})
	return errors.Join(registry.Register(m.transactions), registry.Register(m.seconds), registry.Register(m.batch),
		registry.Register(available))
}

func (b *Bolt) size() float64 {
	info, err := os.Stat(b.db.Path())
	if err != nil {
		return 0 // closed, or removed
	}
	return float64(info.Size())
}

// gauge returns the metric of the stale entries of a kind.
func (c *sealCounts) gauge(kind string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_hub_store_stale_entries", ConstLabels: prometheus.Labels{"file": kind},
		Help: "Entries that are encrypted with another key than the first of --encryption-key-file. At 0 in every file no other key is needed " +
			"for them.",
	}, func() float64 { return float64(c.stale.Load()) })
}
