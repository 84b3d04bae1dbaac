// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
)

// methods walks the methods of the public API by gRPC, at a hub or a worker.
type methods struct {
	*walk
	conn   *grpc.ClientConn
	who    audit.Who
	called map[string]bool
	// lines are what the calls' lines must have, by request id.
	lines map[string]audit.Event
}

func newMethods(w *walk, address string, who audit.Who) *methods {
	w.t.Helper()
	conn := testserver.Dial(w.t, address)
	return &methods{walk: w, conn: conn, who: who, called: map[string]bool{}, lines: map[string]audit.Event{}}
}

// all returns the methods of the public services, as their descriptors have them.
func all() (found []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("atoll.sandbox.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			of := file.Services().Get(i).Methods()
			for j := range of.Len() {
				found = append(found, of.Get(j))
			}
		}
		return true
	})
	return found
}

// fullName is a method's name as gRPC has it.
func fullName(of protoreflect.MethodDescriptor) string {
	return "/" + string(of.Parent().FullName()) + "/" + string(of.Name())
}

func (m *methods) find(method string) protoreflect.MethodDescriptor {
	m.t.Helper()
	at := slices.IndexFunc(all(), func(of protoreflect.MethodDescriptor) bool { return fullName(of) == method })
	if at < 0 {
		m.t.Fatalf("there is no method %s", method)
	}
	return all()[at]
}

func (m *methods) outgoing(id string) context.Context {
	pairs := []string{"x-request-id", id}
	if m.who.Kind == audit.Key {
		pairs = append(pairs, "authorization", "Bearer "+tokens[m.who.Name])
	}
	return metadata.AppendToOutgoingContext(m.t.Context(), pairs...)
}

// read calls a method that has no line, and must succeed.
func (m *methods) read(method string, in proto.Message) proto.Message {
	m.t.Helper()
	return m.invoke(method, in, m.id(""), "")
}

// change calls a method whose line says that this was done. What object lacks are the resource and, of sandboxes, what the response has.
func (m *methods) change(method string, in proto.Message, object audit.Object, cluster string) proto.Message {
	m.t.Helper()
	return m.outcome(method, in, object, cluster, "")
}

// refused calls a method whose line says that this was refused, and why.
func (m *methods) refused(method string, in proto.Message, object audit.Object, cluster string, why problem.Reason) {
	m.t.Helper()
	m.outcome(method, in, object, cluster, why)
}

func (m *methods) outcome(method string, in proto.Message, object audit.Object, cluster string, why problem.Reason) proto.Message {
	m.t.Helper()
	id := m.id(verbOf(method))
	out := m.invoke(method, in, id, why)
	object.Resource = sandboxv1.MethodPermissions[method].Resource
	if made, ok := out.(*sandboxv1.Sandbox); ok && why == "" {
		object.Sandbox = made.GetId()
	}
	line := audit.Event{Stage: audit.Done, Who: m.who, Verb: verbOf(method), Object: object, Cluster: cluster}
	line.Result = audit.Result{Outcome: audit.OK, Code: codes.OK.String()}
	if why != "" {
		line.Result = audit.Result{Outcome: audit.Refused, Reason: string(why), Code: why.Code().String()}
	}
	m.lines[id] = line
	return out
}

// verbOf is the first word of a method's name.
func verbOf(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return strings.ToLower(name[:1+strings.IndexAny(name[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ")])
}

// invoke calls a method. Of a stream it takes the first message.
func (m *methods) invoke(method string, in proto.Message, id string, want problem.Reason) proto.Message {
	m.t.Helper()
	m.called[method] = true
	of := m.find(method)
	made, err := protoregistry.GlobalTypes.FindMessageByName(of.Output().FullName())
	must.Succeed(m.t, err)
	if got := in.ProtoReflect().Descriptor().FullName(); got != of.Input().FullName() {
		m.t.Fatalf("%s takes %s, not %s", method, of.Input().FullName(), got)
	}
	out := made.New().Interface()
	if of.IsStreamingServer() {
		err = m.first(m.outgoing(id), method, in, out)
	} else {
		err = m.conn.Invoke(m.outgoing(id), method, in, out)
	}
	if err == nil && want != "" || err != nil && problem.FromError(err).Reason != want {
		m.t.Fatalf("%s: %v, want %q", method, err, want)
	}
	return out
}

func (m *methods) first(ctx context.Context, method string, in, out proto.Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(in); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(out)
}

// keyHash names a claim key of no team in the namespace default, as the label on the Pod does. Keys of a worker's local API have a space
// of their own.
func keyHash(key string, space ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{"", "default", key}, space...), "\x00")))
	return hex.EncodeToString(sum[:])[:32]
}

// complete fails the test for a method that the walk has not called, and for a line that is not as it must be.
func (m *methods) complete(lines []audit.Event) {
	m.t.Helper()
	for _, of := range all() {
		if !m.called[fullName(of)] {
			m.t.Errorf("the walk does not call %s", fullName(of))
		}
	}
	for _, e := range lines {
		want, ok := m.lines[e.RequestID]
		if !ok && strings.HasPrefix(e.RequestID, m.t.Name()+"-") && m.calls[e.RequestID] == "" && m.talks[e.RequestID] == "" {
			m.t.Errorf("a call that changes nothing has the line %+v", e)
		}
		if !ok {
			continue
		}
		traced := e.TraceID != "" || e.Stage != audit.Done || m.who.Kind != audit.Key
		if e.Replica == "" || e.From.Address == "" || e.From.UserAgent == "" || e.ID == "" || !traced {
			m.t.Errorf("a line lacks something: %+v", e)
		}
		if want.Stage == audit.End && e.Stage == audit.Begin {
			want.Stage, want.Code = audit.Begin, ""
		}
		got := audit.Event{Stage: e.Stage, Who: e.Who, Verb: e.Verb, Object: e.Object, Cluster: e.Cluster}
		got.Result = audit.Result{Outcome: e.Outcome, Reason: e.Reason, Code: e.Code}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			m.t.Errorf("the line of %s (-want +got):\n%s", e.RequestID, diff)
		}
	}
}

// unserved calls what a worker does not serve: methods of the services that it has are refused, with a line where they would change
// something; it does not know the others.
func (m *methods) unserved() {
	m.t.Helper()
	served := map[protoreflect.FullName]bool{}
	for method := range m.called {
		served[m.find(method).Parent().FullName()] = true
	}
	served["atoll.sandbox.v1.Clusters"], served["atoll.sandbox.v1.Templates"] = true, true
	for _, of := range all() {
		method := fullName(of)
		if m.called[method] {
			continue
		}
		in, err := protoregistry.GlobalTypes.FindMessageByName(of.Input().FullName())
		must.Succeed(m.t, err)
		if call, _ := audit.Of(method); call.Changes && served[of.Parent().FullName()] {
			m.refused(method, in.New().Interface(), audit.Object{}, "", problem.Unimplemented)
			continue
		}
		m.called[method] = true
		ctx, empty := m.outgoing(m.id("")), in.New().Interface()
		if of.IsStreamingServer() {
			err = m.first(ctx, method, empty, in.New().Interface())
		} else {
			err = m.conn.Invoke(ctx, method, empty, in.New().Interface())
		}
		known := !strings.HasPrefix(status.Convert(err).Message(), "unknown ")
		if status.Code(err) != codes.Unimplemented || known != served[of.Parent().FullName()] {
			m.t.Errorf("%s at a worker: %v, want Unimplemented", method, err)
		}
	}
}

// The verb of a line is the first word of its method's name, and each method that changes something has lines, but TouchSandbox.
func TestEachChangeHasALine(t *testing.T) {
	for _, of := range all() {
		method := fullName(of)
		needs, known := sandboxv1.MethodPermissions[method]
		call, audited := audit.Of(method)
		if !known || !audited || call.Verb != verbOf(method) || call.Resource != needs.Resource ||
			call.Changes != (needs.Changes && method != sandboxv1.Sandboxes_TouchSandbox_FullMethodName) {
			t.Errorf("%s is %+v in the table of permissions, and %+v in the audit", method, needs, call)
		}
	}
}

// A worker has a line for each change that is made at it, with the caller: one that needs no credentials, on loopback.
func TestAWorkerHasALineForEachChange(t *testing.T) {
	w := newWalk(t)
	m := newMethods(w, atoll.WorkerEndpoint(cluster).Address, audit.Who{Kind: audit.Anonymous, Proof: audit.ByNothing})
	m.lives(canary+"worker", "local", cluster)
	m.envs()
	m.unserved()
	m.complete(w.settled(workerAuditFile()))
}
