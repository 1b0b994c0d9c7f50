package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
)

// A strategy by which every Pod is valid. Two of its methods differ by version: strategy_1_36_test.go, strategy_1_37_test.go.
type anyPod struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (anyPod) NamespaceScoped() bool                                            { return true }
func (anyPod) PrepareForCreate(context.Context, runtime.Object)                 {}
func (anyPod) PrepareForUpdate(_ context.Context, _, _ runtime.Object)          {}
func (anyPod) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (anyPod) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (anyPod) Canonicalize(runtime.Object)                                      {}
func (anyPod) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }
func (anyPod) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}

// startEtcd returns the address of an etcd: $ETCD, what tests/e2e/kube/get.sh has built, or one in the PATH.
func startEtcd(t *testing.T) string {
	t.Helper()
	program := os.Getenv("ETCD")
	if cache, err := os.UserCacheDir(); err == nil && program == "" {
		if built, _ := filepath.Glob(filepath.Join(cache, "gatepost/kube-v*/etcd")); len(built) > 0 {
			program = built[0]
		}
	}
	if program == "" {
		var err error
		if program, err = exec.LookPath("etcd"); err != nil {
			t.Skip("NOT RUN: there is no etcd: name one by $ETCD")
		}
	}
	// Another may take the port before etcd does.
	for range 5 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + listener.Addr().String()
		_ = listener.Close()
		ctx, stop := context.WithCancel(context.Background())
		etcd := exec.CommandContext(ctx, program, "--data-dir", t.TempDir(), "--log-level", "error",
			"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0")
		if err := etcd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = etcd.Wait(); close(ended) }()
		t.Cleanup(func() { stop(); <-ended })
		for isUp := false; !isUp; {
			if answer, err := http.Get(url + "/health"); err == nil {
				_ = answer.Body.Close()
				return url
			}
			select {
			case <-ended:
				isUp = true
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	t.Fatal("etcd does not start")
	return ""
}

// A server that stores Pods in a real etcd before they are initialized, and a sidecar that shows all to root if asked, and
// answers holds and follows as the test says.
type storingServer struct {
	*Storage
	sidecar *sidecar
	ends    chan rawMessage
	reports chan string
	tell    chan rawMessage
}

func storingInEtcd(t *testing.T) *storingServer {
	t.Helper()
	server := &storingServer{ends: make(chan rawMessage, 8), reports: make(chan string, 64), tell: make(chan rawMessage, 8)}
	server.sidecar = &sidecar{socket: filepath.Join(t.TempDir(), "s"), answer: allow, streams: map[string]func(grpc.ServerStream) error{
		readPolicyMethod: func(stream grpc.ServerStream) error {
			var request rawMessage
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			shows := uint64(0)
			if text := string(request); strings.Contains(text, "root") && strings.HasSuffix(text, "\x40\x01") {
				shows = 1
			}
			return stream.SendMsg(rawMessage(number(nil, 1, shows)))
		},
		holdMethod: func(stream grpc.ServerStream) error {
			select {
			case end := <-server.ends:
				return stream.SendMsg(end)
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		},
		followStoredMethod: server.follow,
	}}
	server.sidecar.serve(t)
	p := plugin(t, server.sidecar.socket, "")
	p.initialization = NewInitialization()
	p.initialization.plugin.Store(p)

	config := storagebackend.NewDefaultConfig("/test", scheme.Codecs.CodecForVersions(jsonCodec(), jsonCodec(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion))
	config.Transport.ServerList = []string{startEtcd(t)}
	strategy := anyPod{scheme.Scheme, names.SimpleNameGenerator}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Pod{} },
		NewListFunc:               func() runtime.Object { return &corev1.PodList{} },
		DefaultQualifiedResource:  pods.GroupResource(),
		SingularQualifiedResource: corev1.Resource("pod"),
		CreateStrategy:            strategy, UpdateStrategy: strategy, DeleteStrategy: strategy,
		TableConvertor: rest.NewDefaultTableConvertor(pods.GroupResource()),
	}
	getter := generic.RESTOptions{
		StorageConfig: config.ForResource(pods.GroupResource()), Decorator: genericregistry.StorageWithCacher(),
		ResourcePrefix: "/pods", DeleteCollectionWorkers: 1,
	}
	storage, err := p.initialization.Complete(store, &generic.StoreOptions{RESTOptions: getter}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(storage.Destroy)
	server.Storage = storage
	// The cache takes a while to fill, and the sidecar to be reached.
	for {
		policy := p.initialization.ReadPolicy(as("root", all), Read{Resource: pods})
		if watch, err := storage.Store.Watch(as("root", ""), &internalversion.ListOptions{}); err == nil {
			watch.Stop()
			if policy.ShowsAll {
				return server
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func jsonCodec() runtime.Serializer {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return info.Serializer
}

// follow notes what is reported: the number of the event, and the names in it.
func (s *storingServer) follow(stream grpc.ServerStream) error {
	go func() {
		for {
			select {
			case message := <-s.tell:
				_ = stream.SendMsg(message)
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		var report rawMessage
		if err := stream.RecvMsg(&report); err != nil {
			return err
		}
		kind := []string{"", "unfinished", "initialized", "gone", "synced"}[report[0]>>3]
		for _, name := range []string{"one.example.com", "refused"} {
			if strings.Contains(string(report), name) {
				kind += " " + name
			}
		}
		s.reports <- kind
	}
}

func (s *storingServer) create(ctx context.Context) (*corev1.Pod, error) {
	made := pod("a")
	made.Annotations = map[string]string{InitializersAnnotation: `{"pending":[{"name":"one.example.com"}]}`}
	object, err := s.Create(ctx, made, nil, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return object.(*corev1.Pod), nil
}

// change updates the Pod, whose list is then the one given.
func (s *storingServer) change(list string, validation rest.ValidateObjectUpdateFunc) (runtime.Object, error) {
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		changed := old.DeepCopyObject().(*corev1.Pod)
		changed.Annotations = map[string]string{InitializersAnnotation: list}
		if list == "" {
			changed.Annotations = nil
		}
		return changed, nil
	})
	object, _, err := s.Update(as("one", ""), "a", info, nil, validation, false, &metav1.UpdateOptions{})
	return object, err
}

func (s *storingServer) listed(t *testing.T, ctx context.Context) int {
	t.Helper()
	list, err := s.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.(*corev1.PodList).Items)
}

func (s *storingServer) watched(t *testing.T, ctx context.Context) watch.Interface {
	t.Helper()
	watch, err := s.Watch(ctx, &internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	return watch
}

// next is the type of the next event, and whether its object is unfinished and has failed.
func next(t *testing.T, watch watch.Interface) string {
	t.Helper()
	select {
	case event := <-watch.ResultChan():
		list, err := InitializersOf(event.Object)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case list == nil:
			return string(event.Type)
		case list.Result != nil:
			return fmt.Sprintf("%s failed: %s", event.Type, list.Result.Message)
		default:
			return fmt.Sprintf("%s unfinished", event.Type)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
		return ""
	}
}

func expect(t *testing.T, watch watch.Interface, events ...string) {
	t.Helper()
	for _, event := range events {
		if got := next(t, watch); got != event {
			t.Errorf("%s, not %s", got, event)
		}
	}
}

const all = "includeUninitialized=true"

func TestUnfinishedObjectIsHiddenUntilItIsInitialized(t *testing.T) {
	server := storingInEtcd(t)
	plain, everything := server.watched(t, as("ann", "")), server.watched(t, as("root", all))
	created := make(chan *corev1.Pod)
	go func() {
		made, err := server.create(as("ann", ""))
		if err != nil {
			t.Error(err)
		}
		created <- made
	}()
	expect(t, everything, "ADDED unfinished")
	for name, ctx := range map[string]context.Context{"ann": as("ann", ""), "eve": as("eve", all), "root": as("root", "")} {
		if n := server.listed(t, ctx); n != 0 {
			t.Errorf("%s sees %d", name, n)
		}
		var hidden *apierrors.StatusError
		if _, err := server.Get(ctx, "a", &metav1.GetOptions{}); !errors.As(err, &hidden) || hidden.ErrStatus.Code != 202 {
			t.Error(name, err)
		}
	}
	if _, err := server.Get(as("root", all), "a", &metav1.GetOptions{}); err != nil || server.listed(t, as("root", all)) != 1 {
		t.Error(err)
	}
	// The name is taken.
	if _, err := server.create(as("root", all)); !apierrors.IsAlreadyExists(err) {
		t.Error(err)
	}
	if _, err := server.change("", nil); err != nil {
		t.Fatal(err)
	}
	expect(t, everything, "MODIFIED")
	expect(t, plain, "ADDED")
	server.ends <- rawMessage(nested(nil, 1, []byte{}))
	if made := <-created; made == nil || IsUnfinished(made) {
		t.Error(made)
	}
	if server.listed(t, as("ann", "")) != 1 {
		t.Error("hidden")
	}
}

func TestCreatorGetsTheEndOfAHold(t *testing.T) {
	server := storingInEtcd(t)
	refusal, err := (&metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: "refused"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	everything := server.watched(t, as("root", all))
	server.ends <- rawMessage(nested([]byte(nil), 2, refusal))
	if _, err := server.create(as("ann", "")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal("deleting is always allowed:", err)
	}
	// It is gone before its creator is told.
	ended := make(chan error)
	go func() { _, err := server.create(as("ann", "")); ended <- err }()
	expect(t, everything, "ADDED unfinished", "DELETED unfinished", "ADDED unfinished")
	if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	server.ends <- rawMessage(nested(nil, 4, []byte{}))
	if err := <-ended; !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "was deleted while") {
		t.Error(err)
	}
	// Nobody says anything in time.
	short, cancel := context.WithTimeout(as("ann", ""), holdMargin+100*time.Millisecond)
	defer cancel()
	if _, err := server.create(short); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "is not initialized") {
		t.Error(err)
	}
}

// createKept makes an unfinished Pod that has a finalizer.
func (s *storingServer) createKept(t *testing.T, name string) {
	t.Helper()
	made := pod(name)
	made.Finalizers = []string{"example.com/keep"}
	made.Annotations = map[string]string{InitializersAnnotation: `{"pending":[{"name":"one.example.com"}]}`}
	if _, err := s.Create(as("ann", all), made, nil, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestUnfinishedObjectIsDeletedAtOnceAndNotShown(t *testing.T) {
	server := storingInEtcd(t)
	remains := func() bool {
		_, err := server.Store.Get(as("root", all), "a", &metav1.GetOptions{})
		return !apierrors.IsNotFound(err)
	}
	foreground := metav1.DeletePropagationForeground
	for name, options := range map[string]*metav1.DeleteOptions{"plain": {}, "foreground": {PropagationPolicy: &foreground}, "none": nil} {
		server.createKept(t, "a")
		other, refusal := types.UID("other"), errors.New("refused")
		if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
			t.Errorf("%s: another uid: %v", name, err)
		}
		if _, _, err := server.Delete(as("eve", ""), "a", func(context.Context, runtime.Object) error { return refusal }, options); !errors.Is(err, refusal) {
			t.Errorf("%s: refused: %v", name, err)
		}
		dry := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		if said, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, dry); err != nil || !isStatus(said) || !remains() {
			t.Errorf("%s: dry run: %v %v", name, said, err)
		}
		if said, isGone, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, options); err != nil || !isStatus(said) || !isGone || remains() {
			t.Errorf("%s: %v %v", name, said, err)
		}
	}
	if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, nil); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	// Once it is initialized its finalizers count.
	server.createKept(t, "a")
	if _, err := server.change("", nil); err != nil {
		t.Fatal(err)
	}
	if object, isGone, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil || isStatus(object) || isGone || !remains() {
		t.Error(object, err)
	}
}

func isStatus(object runtime.Object) bool {
	_, ok := object.(*metav1.Status)
	return ok
}

func TestCollectionIsDeletedWithWhatIsHidden(t *testing.T) {
	server := storingInEtcd(t)
	server.createKept(t, "a")
	if _, err := server.Create(as("ann", ""), pod("b"), nil, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	for _, one := range []struct {
		ctx     context.Context
		options *metav1.DeleteOptions
		shown   int
	}{{as("eve", all), dry, 1}, {as("root", all), dry, 2}, {as("eve", ""), &metav1.DeleteOptions{}, 1}} {
		deleted, err := server.DeleteCollection(one.ctx, rest.ValidateAllObjectFunc, one.options, &internalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if items := deleted.(*corev1.PodList).Items; len(items) != one.shown || items[len(items)-1].Name != "b" {
			t.Errorf("%s is shown %d", userOf(one.ctx).GetName(), len(items))
		}
	}
	if n := server.listed(t, as("root", all)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestHoldsAreFewAndAskWithPauses(t *testing.T) {
	server := storingInEtcd(t)
	bound := int64(server.initialization.plugin.Load().configuration.MaxHolds)
	if bound != defaultMaxHolds {
		t.Error(bound)
	}
	server.initialization.held.Store(bound)
	if _, err := server.create(as("ann", "")); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "is not initialized") {
		t.Fatal(err)
	}
	if left := server.initialization.held.Load(); left != bound {
		t.Error(left)
	}
	if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, nil); err != nil {
		t.Fatal(err)
	}
	// With room it waits, and asks again if an end came too early.
	server.initialization.held.Store(bound - 1)
	stop, count := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case server.ends <- rawMessage(nested(nil, 1, []byte{})):
			case <-stop:
				count <- n - len(server.ends)
				return
			}
		}
	}()
	short, cancel := context.WithTimeout(as("ann", ""), holdMargin+5*holdPause)
	defer cancel()
	if _, err := server.create(short); !apierrors.IsTimeout(err) {
		t.Error(err)
	}
	close(stop)
	if n := <-count; n < 1 || n > 6 {
		t.Errorf("asked %d times", n)
	}
}

func TestWhatRefusesAFinishedObjectIsItsResult(t *testing.T) {
	server := storingInEtcd(t)
	plain, everything := server.watched(t, as("ann", "")), server.watched(t, as("root", all))
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	expect(t, everything, "ADDED unfinished")
	refusing := func(err error) rest.ValidateObjectUpdateFunc {
		return func(context.Context, runtime.Object, runtime.Object) error { return err }
	}
	// Where nobody answers the object is as good as before.
	if _, err := server.change("", refusing(apierrors.NewInternalError(errors.New("nobody")))); !apierrors.IsInternalError(err) {
		t.Fatal(err)
	}
	if updated, err := server.change("", refusing(apierrors.NewForbidden(pods.GroupResource(), "a", errors.New("refused")))); err != nil || !IsUnfinished(updated) {
		t.Fatal(updated, err)
	}
	because := `pods "a" is forbidden: refused`
	expect(t, everything, "MODIFIED failed: "+because, "DELETED failed: "+because)
	if _, err := server.Get(as("root", all), "a", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	// An initializer's own result, whatever the finalizers.
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.change(`{"pending":[{"name":"one.example.com"}],"result":{"message":"mine"}}`, nil); err != nil {
		t.Fatal(err)
	}
	expect(t, everything, "ADDED unfinished", "MODIFIED failed: mine", "DELETED failed: mine")
	// Who may not see it has seen nothing: the next event is of another.
	made := pod("b")
	if _, err := server.Create(as("ann", ""), made, nil, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, plain, "ADDED")
}

func TestWithoutThePluginListsStayAsTheyAre(t *testing.T) {
	server := storingInEtcd(t)
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	server.initialization.plugin.Store(nil)
	if _, err := server.change("", nil); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	// Its refusal is not the object's fault.
	if kept, err := server.Store.Get(as("root", all), "a", &metav1.GetOptions{}); err != nil || !IsUnfinished(kept) || server.listed(t, as("root", all)) != 0 {
		t.Error(kept, err)
	}
	if _, _, err := server.Delete(as("eve", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.create(as("ann", "")); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
}

func TestFollowerReportsAndCorrects(t *testing.T) {
	server := storingInEtcd(t)
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	follower := &storedFollower{Initialization: server.initialization, client: server.initialization.plugin.Load().client}
	ended := make(chan error)
	go func() { ended <- follower.follow(ctx) }()
	reported := func(expected ...string) {
		t.Helper()
		for _, one := range expected {
			select {
			case got := <-server.reports:
				if got != one {
					t.Errorf("%s, not %s", got, one)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no report of", one)
			}
		}
	}
	const correction, look = 1, 2
	reported("unfinished one.example.com", "synced")
	stored, err := server.Store.Get(genericapirequest.WithNamespace(ctx, "shop"), "a", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	named := server.nameOf(stored.(*corev1.Pod))
	told := func(what protowire.Number, object objectName, version string, more []byte) {
		var fields fieldsMessage
		object.append(&fields)
		fields.text(6, version)
		server.tell <- rawMessage(event(what, append(fields, more...)))
	}
	told(look, named, "", nil)
	reported("unfinished one.example.com")
	other := named
	other.uid = "another"
	told(look, other, "", nil)
	reported("gone")
	other = named
	other.resource = "services"
	told(look, other, "", nil)
	reported("gone")

	// A correction that comes too late is dropped; one in time is made.
	var remove fieldsMessage
	remove.message(9, nil)
	told(correction, named, "1", remove)
	if _, err := server.change(`{"pending":[{"name":"one.example.com"}],"result":{"message":"refused"}}`, nil); err != nil {
		t.Fatal(err)
	}
	reported("unfinished one.example.com refused", "gone")
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	reported("unfinished one.example.com")
	if stored, err = server.Store.Get(genericapirequest.WithNamespace(ctx, "shop"), "a", &metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	told(correction, server.nameOf(stored.(*corev1.Pod)), stored.(*corev1.Pod).ResourceVersion, remove)
	reported("gone")
	if _, err := server.create(as("ann", all)); err != nil {
		t.Fatal(err)
	}
	reported("unfinished one.example.com")
	if _, err := server.change("", nil); err != nil {
		t.Fatal(err)
	}
	reported("initialized")

	server.tell <- rawMessage(event(3, nil))
	if err := <-ended; !errors.Is(err, errDraining) {
		t.Error(err)
	}
}
