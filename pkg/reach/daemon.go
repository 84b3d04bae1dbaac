// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/validate"
)

const (
	maxPathBytes = 4096
	maxUserBytes = 256
	maxBody      = 256 << 10 // of a request in JSON
	bodyTimeout  = 30 * time.Second
	maxReply     = 4 << 20 // of the daemon, in one message
)

// NothingListens is the start of a worker's message about a port without a listener.
const NothingListens = "nothing listens on the port"

// Tokens returns the token of a sandbox's daemon.
type Tokens func(sandbox string) (string, error)

// inside is a request to a sandbox's daemon.
type inside struct {
	*sandboxd.Client
	context context.Context
	w       http.ResponseWriter
	request *http.Request
	target  target
	query   query
	now     time.Time
}

type asKey struct{}

// kindIn returns the kind of the request of which a conversation is a part, or "" if the conversation is not part of another request.
func kindIn(ctx context.Context) string {
	kind, _ := ctx.Value(asKey{}).(string)
	return kind
}

// direct sends requests through the tunnels of a handler. The destination of a request is in its context.
type direct struct{ http.RoundTripper }

// Do implements connect.HTTPClient. It follows no redirects.
func (d direct) Do(r *http.Request) (*http.Response, error) { return d.RoundTrip(r) }

// daemon serves a request for files or processes by calls to the sandbox's daemon.
func (h *Handler) daemon(w http.ResponseWriter, r *http.Request, t target) error {
	serve := operations[t.what+":"+t.verb]
	of, known := serve[r.Method]
	if !known {
		methodNotAllowed(w, r, serve)
		return nil
	}
	if h.Tokens == nil {
		return problem.New(problem.Unimplemented, "files and processes are served by the hub; ask it")
	}
	token, err := h.Tokens(t.id)
	if err != nil {
		return err
	}
	call, err := portCall(strconv.Itoa(envd.Port))
	if err != nil {
		return err
	}
	dialled := &dialled{}
	defer dialled.close()
	ctx := context.WithValue(r.Context(), asKey{}, t.what)
	ctx = context.WithValue(ctx, forwarded{}, forwarded{
		target: t, host: r.Host, call: call, dialled: dialled, caller: h.caller(r.Context()),
	})
	i := &inside{
		Client:  &sandboxd.Client{HTTP: direct{h.asking}, Base: "http://localhost:" + strconv.Itoa(envd.Port), Token: token},
		context: ctx, w: w, request: r, target: t, query: query{values: r.URL.Query()}, now: time.Now(),
	}
	i.User = i.query.text("user", maxUserBytes)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	w.Header().Set("Cache-Control", "no-store")
	if err := of(i); err != nil {
		return i.explain(err)
	}
	return nil
}

type operation func(*inside) error

// operations are the supported operations, by target, verb and method.
var operations = map[string]map[string]operation{
	"files:":           {http.MethodGet: (*inside).download, http.MethodPut: (*inside).upload, http.MethodDelete: (*inside).remove},
	"files:list":       {http.MethodGet: (*inside).list},
	"files:stat":       {http.MethodGet: (*inside).stat},
	"files:mkdir":      {http.MethodPost: (*inside).makeDir},
	"files:archive":    {http.MethodGet: (*inside).pack, http.MethodPut: (*inside).unpack},
	"files:move":       {http.MethodPost: (*inside).move},
	"processes:":       {http.MethodGet: (*inside).processes, http.MethodPost: (*inside).run},
	"processes:signal": {http.MethodPost: (*inside).signal},
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request, of map[string]operation) {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if of[method] != nil {
			methods = append(methods, method)
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	problem.New(problem.Invalid, "%s is not a method of %s; there are: %s", r.Method, r.URL.Path, w.Header().Get("Allow")).
		WriteStatus(w, http.StatusMethodNotAllowed)
}

// text returns a parameter, and reports a fault if it has more than the given number of bytes.
func (q *query) text(name string, most int) string {
	text := q.values.Get(name)
	q.bounded(name, text, most)
	return text
}

// bounded reports a fault for a text that the daemon cannot accept.
func (q *query) bounded(name, text string, most int) {
	if len(text) > most || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		q.fault(name, validate.Clip(text), fmt.Sprintf("UTF-8 of at most %d bytes, without NUL", most))
	}
}

// path checks a path in the sandbox, which is required.
func (q *query) path(name, text string) {
	if text == "" {
		q.fault(name, "", "a path in the sandbox; one that is not absolute is below the home of its user")
	}
	q.bounded(name, text, maxPathBytes)
}

// read decodes the body of a request.
func (i *inside) read(into any) error {
	control := http.NewResponseController(i.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	text, err := io.ReadAll(io.LimitReader(i.request.Body, maxBody+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return problem.New(problem.Invalid, "the request's body broke off: %s", validate.Clip(err.Error()))
	case len(text) > maxBody:
		return problem.InvalidField("body", fmt.Sprintf("more than %d bytes", maxBody), fmt.Sprintf("at most %d bytes", maxBody))
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return problem.New(problem.Invalid, "the body is not valid: %s", validate.Clip(strings.TrimPrefix(err.Error(), "json: ")))
	}
	if decoder.More() {
		return problem.New(problem.Invalid, "the body is not valid: text after the first value")
	}
	return nil
}

func (i *inside) reply(what any) error {
	i.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(i.w).Encode(what)
	return nil
}

// callDaemon makes a unary call of the sandbox's daemon.
func callDaemon[R, Q any](ctx context.Context, i *inside, path string, q *Q) (*R, error) {
	return sandboxd.Call[R](ctx, i.Client, path, maxReply, i.now, q)
}

// ofStatus and ofCode map the statuses with which a daemon refuses a call to reasons.
var ofStatus = map[int]problem.Reason{
	http.StatusBadRequest: problem.Invalid, http.StatusForbidden: problem.Forbidden, http.StatusNotFound: problem.NotFound,
	http.StatusInsufficientStorage: problem.Quota, http.StatusRequestEntityTooLarge: problem.Invalid,
	http.StatusInternalServerError: problem.Internal,
}

var ofCode = map[connect.Code]problem.Reason{
	connect.CodeInvalidArgument: problem.Invalid, connect.CodeAlreadyExists: problem.Invalid, connect.CodeFailedPrecondition: problem.Invalid,
	connect.CodeOutOfRange: problem.Invalid, connect.CodePermissionDenied: problem.Forbidden, connect.CodeNotFound: problem.NotFound,
	connect.CodeResourceExhausted: problem.Quota, connect.CodeDeadlineExceeded: problem.Deadline,
	connect.CodeUnimplemented: problem.Unimplemented, connect.CodeInternal: problem.Internal,
}

// reasonOf returns the reason of a failed call. Connect reports a response that broke off as internal, but a retry may succeed, so its
// reason is Unavailable.
func reasonOf(call *connect.Error) problem.Reason {
	if call.Code() == connect.CodeInternal && !connect.IsWireError(call) {
		return problem.Unavailable
	}
	return cmp.Or(ofCode[call.Code()], problem.Unavailable)
}

// NoDaemon reports whether an error of a call to the daemon, made here or through the hub, means that nothing listens on its port.
func NoDaemon(err error) bool {
	var known *problem.Error
	var status *sandboxd.StatusError
	switch {
	case errors.As(err, &known):
		return known.Reason == problem.Unavailable && strings.HasPrefix(known.Message, NothingListens)
	case errors.As(err, &status):
		return status.Status == http.StatusServiceUnavailable && strings.HasPrefix(status.Error(), NothingListens)
	default:
		return false
	}
}

// NotReached returns the error of a create whose sandbox's daemon did not respond in time. absent means that nothing listened on its port,
// which is a fault of the template. Otherwise a retry may help, because many daemons start at once, or their connections wait for each
// other.
func NotReached(within time.Duration, absent bool, last error) error {
	if absent {
		return problem.New(problem.Misconfigured, "the sandbox's daemon did not respond at port %d within %s (%s); the Env's template needs the "+
			"runtime e2b", envd.Port, within, validate.Clip(last.Error()))
	}
	return problem.New(problem.Unavailable, "the sandbox's daemon was not reached within %s (%s)", within, validate.Clip(last.Error())).
		WithRetryAfter(notReachedRetry)
}

// notReachedRetry is the delay before such a create is retried.
const notReachedRetry = 2 * time.Second

// explain converts an error of a call to the daemon to the error that callers get.
func (i *inside) explain(err error) error {
	var known *problem.Error
	var status *sandboxd.StatusError
	var call *connect.Error
	switch {
	case NoDaemon(err):
		return problem.New(problem.Misconfigured, "sandbox %s has no daemon at port %d, so that its files and processes are not served; the "+
			"Env's template needs atoll-sandboxd. Its exec works without", i.target.id, envd.Port)
	case errors.As(err, &known):
		return known
	case errors.Is(err, sandboxd.ErrForeignToken):
		return problem.New(problem.Misconfigured, "%s; replicas and successors of a hub need the same --e2b-key-file", err)
	case errors.As(err, &status) && status.Status == http.StatusUnauthorized:
		return problem.InvalidField("user", i.User, validate.Clip(status.Error()))
	case status != nil:
		return problem.New(cmp.Or(ofStatus[status.Status], problem.Unavailable), "%s", validate.Clip(status.Error()))
	case errors.As(err, &call) && call.Code() == connect.CodeUnauthenticated:
		return problem.InvalidField("user", i.User, validate.Clip(call.Message()))
	case call != nil:
		return problem.New(reasonOf(call), "%s", validate.Clip(call.Message()))
	default:
		return problem.New(problem.Unavailable, "the daemon of sandbox %s did not respond: %s", i.target.id, validate.Clip(err.Error()))
	}
}
