// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
)

// Audit records the conversations that an opener opens: the begin and the end of each, and each refusal.
func Audit(o Opener, calls *audit.Calls) Opener {
	if o == nil || calls.Log == nil {
		return o
	}
	return auditing{o, calls}
}

type auditing struct {
	opener Opener
	calls  *audit.Calls
}

// callOf returns the name of a conversation in the table of permissions.
func callOf(kind string) audit.Call {
	switch kind {
	case "exec":
		return audit.Call{Verb: "exec", Resource: access.SandboxesExec, Changes: true}
	case "files", "processes":
		return audit.Call{Verb: kind, Resource: access.SandboxesExec, Changes: true}
	case "logs":
		return audit.Call{Verb: "logs", Resource: access.SandboxesLog, Changes: true}
	default:
		return audit.Call{Verb: "connect", Resource: access.SandboxesPort, Changes: true}
	}
}

func (a auditing) Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error) {
	log, kind := a.calls.Log, cmp.Or(kindIn(ctx), Kind(what))
	e := a.calls.Begin(ctx, callOf(kind))
	e.Object.Sandbox, e.Cluster = id, clusterOf(id)
	e.Conversation = &audit.Conversation{Kind: kind, Container: container(what), Port: what.GetPort().GetPort()}
	if err := log.Before(ctx, e); err != nil {
		return nil, err
	}
	began := log.Now()
	tunnel, err := a.opener.Open(ctx, id, what)
	e.Stage, e.Result = audit.Begin, audit.ResultOf(err, e.Result)
	e.Millis = log.Now().Sub(began).Milliseconds()
	a.calls.Settle(ctx, e)
	if err != nil {
		return nil, err
	}
	t := &audited{Tunnel: tunnel}
	t.over = sync.OnceFunc(func() {
		e.Stage, e.Time, e.Millis = audit.End, log.Now(), log.Now().Sub(began).Milliseconds()
		e.Result = ended(t.failure(), e.Millis)
		e.Conversation = &audit.Conversation{
			Kind: kind, Container: e.Conversation.Container, Port: e.Conversation.Port, BytesIn: t.in.Load(), BytesOut: t.out.Load(),
			Cause: t.cause(),
		}
		log.Record(e)
	})
	return t, nil
}

// ended returns the result of a conversation. A conversation that has begun is never recorded as refused, not even if its sandbox is
// released: "refused" would mean that it changed nothing.
func ended(err error, millis int64) audit.Result {
	r := audit.ResultOf(err, audit.Result{Millis: millis})
	if r.Outcome == audit.Refused {
		r.Outcome = audit.Unknown
	}
	return r
}

// clusterOf returns the cluster that created a sandbox id.
func clusterOf(id string) string {
	_, cluster, _ := strings.Cut(id, "-")
	return cluster
}

func container(what *federationv1.ReachCall) string {
	return cmp.Or(what.GetExec().GetContainer(), what.GetLogs().GetContainer())
}

// audited counts the bytes of a tunnel and records why it ended.
type audited struct {
	Tunnel
	in, out atomic.Int64
	ended   atomic.Pointer[error] // the first end that either side reported
	over    func()
}

// The causes of an end.
const (
	sandboxEnded = "the sandbox's side has ended"
	callerLeft   = "the caller has left"
)

func (t *audited) note(err error) { t.ended.CompareAndSwap(nil, &err) }

func (t *audited) Recv() ([]byte, error) {
	message, err := t.Tunnel.Recv()
	t.out.Add(int64(len(message)))
	if err != nil {
		t.note(err)
	}
	return message, err
}

func (t *audited) Send(message []byte) error {
	err := t.Tunnel.Send(message)
	if err == nil {
		t.in.Add(int64(len(message)))
	}
	return err
}

func (t *audited) Close(reason error) {
	t.note(reason)
	t.over()
	t.Tunnel.Close(reason)
}

// failure returns the error that ended the conversation, or nil if it ended normally or its caller left.
func (t *audited) failure() error {
	if err := t.ended.Load(); err != nil && *err != nil && !errors.Is(*err, io.EOF) {
		return *err
	}
	return nil
}

// cause returns one of a fixed set of texts, because an error's text may quote what a sandbox sent.
func (t *audited) cause() string {
	switch err := t.ended.Load(); {
	case err == nil || *err == nil:
		return callerLeft
	case errors.Is(*err, io.EOF):
		return sandboxEnded
	default:
		return string(problem.FromError(*err).Reason)
	}
}

// AuditRefusals records the requests that a handler refuses before the opener is called; see audit.NoteRefusal.
func (h *Handler) AuditRefusals(calls *audit.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.Watch(r.Context())
		next.ServeHTTP(w, r.WithContext(ctx))
		t, _ := h.find(r)
		kind := t.kind()
		if kind == "ports" {
			kind = "port"
		}
		calls.RecordRefusal(ctx, callOf(kind), func(e *audit.Event) {
			e.Object.Sandbox, e.Cluster = t.id, clusterOf(t.id)
			e.Conversation = &audit.Conversation{Kind: kind}
		})
	})
}
