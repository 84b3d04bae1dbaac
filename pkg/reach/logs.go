// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
)

// errorTrailer is the trailer with the reason why a log broke off.
const errorTrailer = "Atoll-Error"

func logsCall(r *http.Request) (*federationv1.ReachCall, error) {
	q := query{values: r.URL.Query()}
	logs := &federationv1.LogsReach{Container: q.values.Get("container"), Follow: q.flag("follow"), Timestamps: q.flag("timestamps")}
	if text := q.values.Get("tail"); text != "" {
		lines, err := strconv.ParseInt(text, 10, 64)
		if err != nil || lines < 0 {
			q.fault("tail", text, "a number of lines")
		}
		logs.Tail = &lines
	}
	if text := q.values.Get("since"); text != "" {
		since, err := time.ParseDuration(text)
		if err != nil || since <= 0 {
			q.fault("since", text, serve.ValidDuration)
		}
		logs.Since = durationpb.New(since)
	}
	if logs.Runtime = q.values.Get("runtime"); logs.Runtime != "" {
		for _, other := range []string{"container", "since", "timestamps"} {
			if text := q.values.Get(other); text != "" && text != "false" {
				q.fault(other, text, "nothing beside runtime, whose log is a file")
			}
		}
	}
	if err := q.known("container runtime follow tail since timestamps"); err != nil {
		return nil, err
	}
	return &federationv1.ReachCall{What: &federationv1.ReachCall_Logs{Logs: logs}}, nil
}

func (h *Handler) logs(w http.ResponseWriter, r *http.Request, t target) error {
	call, err := logsCall(r)
	if err != nil {
		return err
	}
	tunnel, err := h.open(r.Context(), t.id, call)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Trailer", errorTrailer)
	w.WriteHeader(http.StatusOK)
	reader := &logReader{w: w, flusher: http.NewResponseController(w), ctx: r.Context(), told: make(chan struct{})}
	_ = reader.flusher.Flush() // shows a follower that the stream has begun
	if err := Join(reader, tunnel); err != nil {
		h.log.V(1).Info("A log broke off", "sandbox", t.id, "reason", err.Error())
		header.Set(errorTrailer, problem.FromError(err).Message)
	}
	return nil
}

// logReader is a caller that only receives.
type logReader struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	ctx     context.Context
	told    chan struct{} // closed after the last message
	once    sync.Once
}

func (l *logReader) Recv() ([]byte, error) {
	select {
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	case <-l.told:
		return nil, errLeft
	}
}

func (l *logReader) Send(message []byte) error {
	if _, err := l.w.Write(message); err != nil {
		return err
	}
	return l.flusher.Flush()
}

func (l *logReader) CloseSend() error {
	l.once.Do(func() { close(l.told) })
	return nil
}

// Hurry sets a deadline for writes. With HTTP, exceeding it ends the connection.
func (l *logReader) Hurry() { _ = l.flusher.SetWriteDeadline(time.Now().Add(hurry)) }

func (l *logReader) Close(error) { _ = l.CloseSend() }
