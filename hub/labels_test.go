// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/monitoring"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

const hostile = "hostile-7f3a"

// TestI14LabelsOfMetricsAreBounded, whatever callers with and without credentials, and a cluster, send.
func TestI14LabelsOfMetricsAreBounded(t *testing.T) {
	for _, keys := range []bool{false, true} {
		t.Run(fmt.Sprintf("keys=%t", keys), func(t *testing.T) {
			recorder := monitoring.NewRecorder()
			l := lifeOf(t, testOptions(t))
			l.metrics = recorder
			if keys {
				l.options.apiKeysFile = filepath.Join(t.TempDir(), "keys.yaml")
				teamKeys(t, l.options.apiKeysFile, "red")
			}
			l.begin()
			l.sendHostileText()
			if !keys {
				l.lieAsACluster()
			}
			if err := recorder.CheckLabels(hostile); err != nil {
				t.Errorf("I14: %v", err)
			}
		})
	}
}

// sendHostileText puts a text wherever a caller can.
func (l *life) sendHostileText() {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	sandboxes, claims := sandboxv1.NewSandboxesClient(l.conn), sandboxv1.NewClaimsClient(l.conn)
	for i := range 40 {
		text := fmt.Sprint(hostile, "-", i)
		for _, path := range []string{"/" + text, "/v1/" + text, "/v1/sandboxes/" + text, "/v1/sandboxes/" + text + "/ports/80/" + text,
			"/v1/envs/" + text + "/" + text, "/v1/claims/" + text + "?namespace=" + text, "/v1/sandboxes?" + text + "=" + text} {
			for _, method := range []string{http.MethodGet, http.MethodDelete, strings.ToUpper(text)} {
				l.request(ctx, method, path, text, "")
			}
		}
		l.request(ctx, http.MethodPost, "/v1/sandboxes", text,
			fmt.Sprintf(`{"env":%q,"team":%q,"user":%q,"claimKey":%q,%q:1}`, text, text, text, text, text))
		for _, method := range []string{"/atoll.sandbox.v1.Sandboxes/" + text, "/" + text + "/" + text} {
			_ = l.conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
			if stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method); err == nil {
				_ = stream.CloseSend()
				_ = stream.RecvMsg(&emptypb.Empty{})
			}
		}
		_, _ = sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: text, Namespace: text, Team: text, User: text,
			ClaimKey: text, Image: text, Labels: map[string]string{text: text}, Metadata: map[string]string{text: text}})
		_, _ = sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: text})
		_, _ = claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: text, Namespace: text, Team: text})
	}
}

func (l *life) request(ctx context.Context, method, path, text, body string) {
	l.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+l.address.api+path, strings.NewReader(body))
	must.Succeed(l, err)
	r.Header = http.Header{"Authorization": {"Bearer " + text}, "User-Agent": {text},
		"Content-Type": {"application/json"}, "Idempotency-Key": {text}}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
	}
}

// lieAsACluster answers claims with reasons, codes and dispositions that do not exist, and sends records with such reasons.
func (l *life) lieAsACluster() {
	l.Helper()
	worker := l.attach()
	sandboxes := sandboxv1.NewSandboxesClient(l.conn)
	for i := range 40 {
		text := fmt.Sprint(hostile, "-", i)
		details, err := anypb.New(&errdetails.ErrorInfo{Domain: problem.Domain, Reason: text})
		must.Succeed(l, err)
		answer := &federationv1.Answer{Disposition: federationv1.Disposition(1000 + i), Error: &federationv1.Error{
			Code: int32(1000 + i), Message: text, Details: []*anypb.Any{details},
		}}
		if i%2 == 0 {
			answer.Disposition = federationv1.Disposition_DONE
		}
		ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo", StartupTimeout: durationpb.New(time.Second)})
		}()
		select {
		case d := <-worker.claims:
			answer.Id = d.GetId()
			worker.send <- &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: answer}}
		case <-ctx.Done():
			l.Fatal("the cluster was not asked")
		}
		<-done
		cancel()
		worker.send <- &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Ended{Ended: &federationv1.Ended{
			Batch: uint64(i + 1), Sandboxes: []*federationv1.EndedSandbox{{
				Sandbox: &sandboxv1.Sandbox{Id: eastSandbox, Namespace: text, StopReason: text, FailureReason: text}, KeyHash: text, Attempt: int32(i),
			}},
		}}}
		<-worker.acks
	}
}
