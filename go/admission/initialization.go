package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

// Methods of gatepost.v1.Initialization; see proto/gatepost/v1/initialization.proto.
const (
	readPolicyMethod   = "/gatepost.v1.Initialization/ReadPolicy"
	holdMethod         = "/gatepost.v1.Initialization/Hold"
	followStoredMethod = "/gatepost.v1.Initialization/Follow"

	// includeParameter is the parameter by which a client asks for objects that are not initialized, too.
	includeParameter = "includeUninitialized"
	// readPolicyTimeout bounds what a read waits for its policy.
	readPolicyTimeout = 5 * time.Second
	// maxHold bounds how long a CREATE is held. The client's own time is shorter by holdMargin, in which it is answered.
	maxHold    = 30 * time.Second
	holdMargin = time.Second
	holdPause  = 100 * time.Millisecond
	// reasonInitializing is the reason of a GET of an object that is not initialized.
	reasonInitializing metav1.StatusReason = "Initializing"
)

// Initialization is what the admission plugin and the storage share in a server that stores objects before they are
// initialized. The server
//
//   - registers the plugin by its Register, instead of [Register];
//   - completes the stores of such resources by its Complete, and serves what that returns;
//   - puts its Handler before the handler of the API;
//   - calls its Run in a hook after the start.
//
// An object is then stored with the list of those who must act, hidden from all who may not see it, and its CREATE is
// answered once it is initialized.
type Initialization struct {
	plugin   atomic.Pointer[Plugin]
	loopback atomic.Pointer[dynamic.DynamicClient]
	// How many CREATEs are held.
	held atomic.Int64
	// Does not change once the server serves.
	storages map[schema.GroupResource]*Storage
}

// NewInitialization returns one of which no store is completed yet.
func NewInitialization() *Initialization {
	return &Initialization{storages: map[schema.GroupResource]*Storage{}}
}

// Register adds the plugin to those that a server knows, as [Register] does. Without it (--disable-admission-plugins) the
// server stores no new object before it is initialized, and those that are there stay hidden and as they are.
func (i *Initialization) Register(plugins *admission.Plugins) {
	register(plugins, i)
}

// Handler notes which requests ask for objects that are not initialized, by includeUninitialized=true. It stands directly
// before the handler of the API: see BuildHandlerChainFunc of the server's configuration.
func (i *Initialization) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, includeParameter) {
			switch r.URL.Query().Get(includeParameter) {
			case "true", "1":
				r = r.WithContext(context.WithValue(r.Context(), includes{}, true))
			}
		}
		next.ServeHTTP(w, r)
	})
}

type includes struct{}

func includesUnfinished(ctx context.Context) bool {
	return ctx.Value(includes{}) != nil
}

// stores reports whether objects of the request's resource are stored before they are initialized.
func (i *Initialization) stores(attributes admission.Attributes) bool {
	return i != nil && i.storages[attributes.GetResource().GroupResource()] != nil
}

// concerns reports whether the request is about an object that is not initialized, or that its client wants to be so, unless
// it deletes it, as everyone may.
func (i *Initialization) concerns(attributes admission.Attributes) bool {
	return i.stores(attributes) && attributes.GetOperation() != admission.Delete && (IsUnfinished(attributes.GetObject()) || IsUnfinished(attributes.GetOldObject()))
}

// whenInitialized returns the request that validating hooks are asked about; nil if they are not asked. They judge an
// object once, when it becomes visible: as the CREATE of its creator.
func whenInitialized(attributes admission.Attributes) (admission.Attributes, error) {
	switch old := attributes.GetOldObject(); {
	case IsUnfinished(attributes.GetObject()):
		return nil, nil
	case IsUnfinished(old):
		list, err := InitializersOf(old)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		creator := &user.DefaultInfo{}
		if list.Creator != nil {
			creator.Name, creator.UID, creator.Groups = list.Creator.Username, list.Creator.UID, list.Creator.Groups
			for key, values := range list.Creator.Extra {
				if creator.Extra == nil {
					creator.Extra = map[string][]string{}
				}
				creator.Extra[key] = values
			}
		}
		return creation{attributes, creator}, nil
	default:
		return attributes, nil
	}
}

// A creation is the update that completes an object, as the CREATE of its creator.
type creation struct {
	admission.Attributes
	creator user.Info
}

func (c creation) GetOperation() admission.Operation { return admission.Create }
func (c creation) GetOldObject() runtime.Object      { return nil }
func (c creation) GetUserInfo() user.Info            { return c.creator }
func (c creation) GetOperationOptions() runtime.Object {
	return &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}}
}

// ReadVerb is the verb of a [Read].
type ReadVerb uint64

// Verbs, as in gatepost.v1.ReadVerb.
const (
	ReadGet ReadVerb = iota
	ReadList
	ReadWatch
	ReadDeleteCollection
)

// Read is one request that reads. Its user, and whether that one asks for objects that are not initialized, are in its
// context.
type Read struct {
	Verb     ReadVerb
	Resource schema.GroupVersionResource
	// Namespace is empty for all of them.
	Namespace string
	// Name is that of a GET.
	Name string
}

// ReadPolicy is what one read shows. The zero value hides what is not initialized.
type ReadPolicy struct {
	// ShowsAll is true if the read shows objects that are not initialized, too.
	ShowsAll bool
	hidden   *metav1.Status
	repair   *readRepair
}

// A readRepair says that a read which comes upon an object that is older removes its first name, unless that must act.
type readRepair struct {
	olderThan time.Duration
	mustAct   []string
}

// ReadPolicy asks Gatepost what a read shows: once a request. While Gatepost does not answer, objects that are not
// initialized are hidden.
func (i *Initialization) ReadPolicy(ctx context.Context, read Read) ReadPolicy {
	plugin := i.plugin.Load()
	if plugin == nil {
		return ReadPolicy{}
	}
	ctx, cancel := context.WithTimeout(ctx, readPolicyTimeout)
	defer cancel()
	policy, err := plugin.client.readPolicy(ctx, read)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Gatepost does not say what a read shows: objects that are not initialized are hidden", "reason", err)
		return ReadPolicy{}
	}
	return policy
}

func (c *client) readPolicy(ctx context.Context, read Read) (ReadPolicy, error) {
	request, err := readPolicyMessage(ctx, read)
	if err != nil {
		return ReadPolicy{}, err
	}
	connection, err := c.connected(ctx)
	if err != nil {
		return ReadPolicy{}, err
	}
	var answer encoded
	if err := connection.Invoke(ctx, readPolicyMethod, request, &answer); err != nil {
		return ReadPolicy{}, err
	}
	return readReadPolicy(answer)
}

// Shows reports whether the read shows an object.
func (p ReadPolicy) Shows(object runtime.Object) bool {
	return p.ShowsAll || !IsUnfinished(object)
}

// Hidden returns the answer to a GET of an object that is not shown: 202, but as a failure, which clients take for an
// error; or 404 for those who need that.
func (p ReadPolicy) Hidden(resource schema.GroupResource, object runtime.Object) error {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if p.hidden != nil && p.hidden.Code == http.StatusNotFound {
		return apierrors.NewNotFound(resource, metadata.GetName())
	}
	hidden := metav1.Status{Code: http.StatusAccepted, Reason: reasonInitializing}
	if p.hidden != nil {
		hidden = *p.hidden
	}
	hidden.Status = metav1.StatusFailure
	hidden.Message = fmt.Sprintf("%s %q is not initialized yet", resource, metadata.GetName())
	hidden.ResourceVersion = metadata.GetResourceVersion()
	hidden.Details = &metav1.StatusDetails{Name: metadata.GetName(), Group: resource.Group, Kind: resource.Resource, UID: metadata.GetUID()}
	return &apierrors.StatusError{ErrStatus: hidden}
}

// late returns the name that a read removes from the list of an object; "" if none.
func (p ReadPolicy) late(object runtime.Object, now time.Time) string {
	list, err := InitializersOf(object)
	metadata, failed := meta.Accessor(object)
	if err != nil || failed != nil || p.repair == nil || list == nil || list.Result != nil || len(list.Pending) == 0 {
		return ""
	}
	head := list.Pending[0].Name
	for _, name := range p.repair.mustAct {
		if name == head {
			return ""
		}
	}
	if now.Sub(metadata.GetCreationTimestamp().Time) <= p.repair.olderThan {
		return ""
	}
	return head
}

// A holdEnd is the end of an object's initialization.
type holdEnd struct {
	// Its creator gets this; nil if the object is initialized or deleted, of which the storage knows more.
	refusal *metav1.Status
}

var errNotHeld = errors.New("nobody says whether it is initialized")

// hold waits for the end of an object's initialization, until the context's deadline.
func (c *client) hold(ctx context.Context, request encoded) (holdEnd, error) {
	connection, release, err := c.holdConnection()
	if err != nil {
		return holdEnd{}, err
	}
	defer release()
	for {
		var answer encoded
		err := connection.Invoke(ctx, holdMethod, request, &answer, grpc.WaitForReady(true))
		if err == nil {
			return readHoldEnd(answer)
		}
		if code := status.Code(err); ctx.Err() != nil || code == codes.InvalidArgument || code == codes.Unimplemented {
			return holdEnd{}, fmt.Errorf("%w: %s", errNotHeld, shorten(status.Convert(err).Message()))
		}
		// It is about to end, or has no room: the same once more, of whoever serves there then.
		select {
		case <-ctx.Done():
		case <-time.After(holdPause):
		}
	}
}

// userOf returns the user of a request.
func userOf(ctx context.Context) user.Info {
	if info, ok := genericapirequest.UserFrom(ctx); ok && info != nil {
		return info
	}
	return &user.DefaultInfo{}
}
