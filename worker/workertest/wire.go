// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Trouble describes the faults between a worker and its API server.
type Trouble struct {
	// Down makes connections fail.
	Down bool
	// Slow is the maximum extra delay of a request.
	Slow time.Duration
	// RefusedPercent is the percentage of requests that get a 429.
	RefusedPercent int
	// LostResponsePercent is the percentage of writes that are carried out and whose responses are lost.
	LostResponsePercent int
	// LatePercent is the percentage of writes that arrive up to LateBy later; the client times out before that.
	LatePercent int
	LateBy      time.Duration
}

// pingTimeout is when HTTP/2 detects a dead connection.
const pingTimeout = 45 * time.Second

var errLost = errors.New("workertest: the connection was lost")

var errDown = fmt.Errorf("workertest: %w", syscall.ECONNREFUSED)

// errSevered is the error of requests of a killed process.
var errSevered = errors.New("workertest: the process is dead")

// wire is one process's connection to its API server.
type wire struct {
	cluster *Cluster
	severed chan struct{}
	once    sync.Once
}

func (c *Cluster) connect() *wire { return &wire{cluster: c, severed: make(chan struct{})} }

// sever disconnects the process. Requests that were sent still arrive, and their responses are lost.
func (w *wire) sever() { w.once.Do(func() { close(w.severed) }) }

func (w *wire) dead() bool {
	select {
	case <-w.severed:
		return true
	default:
		return false
	}
}

func (w *wire) config() *rest.Config {
	cfg := &rest.Config{Host: "https://" + w.cluster.ID + ".sim", Transport: w, QPS: -1}
	cfg.ContentType = runtime.ContentTypeJSON
	return cfg
}

// journey describes what happens to one request.
type journey struct {
	there, back  time.Duration
	down         bool
	refused      bool
	responseLost bool
}

// RoundTrip implements http.RoundTripper. A sent request is carried out even if its caller has stopped waiting.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := readCall(r)
	if err != nil {
		return respond(r, w.cluster.now(), nil, err)
	}
	if w.dead() {
		return nil, errSevered
	}
	type result struct {
		object runtime.Object
		err    error
	}
	done := make(chan result, 1)
	j := w.cluster.plan(r.Method != http.MethodGet)
	if j.down {
		return nil, errDown
	}
	go func() {
		time.Sleep(j.there)
		if j.refused {
			done <- result{nil, apierrors.NewTooManyRequests("the API server is busy", 1)}
			return
		}
		object, err := w.cluster.server.carryOut(c)
		w.cluster.carriedOut(c, object, err)
		time.Sleep(j.back)
		if j.responseLost {
			time.Sleep(pingTimeout)
			object, err = nil, errLost
		}
		done <- result{object, err}
	}()
	select {
	case got := <-done:
		if w.dead() {
			return nil, errSevered
		}
		if errors.Is(got.err, errLost) {
			return nil, errLost
		}
		return respond(r, w.cluster.now(), got.object, got.err)
	case <-w.severed:
		return nil, errSevered
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
