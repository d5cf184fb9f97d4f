package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// Config says what a Service is like. The zero value is a working one without subnets.
type Config struct {
	Account string // 12 digits; empty is 123456789012

	// Cluster is the cluster whose discovery tag the default world carries: a VPC, private and public subnets in three zones, a
	// security group. Empty: no network at all, only images.
	Cluster string

	Seed         uint64          // makes ids and chance repeatable
	PendingFor   time.Duration   // from launch to running
	ShutdownFor  time.Duration   // from shutting-down to terminated
	KeepFor      time.Duration   // how long a terminated instance stays visible; 0 is an hour
	AddressesPer func(*Type) int // addresses that an instance takes of its subnet; nil is one

	Faults *fault.Injector // nil: nothing fails
	Log    *fault.Log      // where calls are written; nil: nowhere

	// Authorize is asked before each call is carried out; an error makes it UnauthorizedOperation. Nil allows all.
	Authorize func(context.Context, Access) error
	// ImagesRolled is called with SSMParameters whenever newer images were published. Nil: nobody asks.
	ImagesRolled func(parameters map[string]string)
	// ProfileExists says whether an instance profile, by name, exists. Nil: each does.
	ProfileExists func(name string) bool
}

// Access is what a call wants to do, for Config.Authorize.
type Access struct {
	AccessKeyID string // who signed the call; empty when called in process
	Action      string // without the ec2: prefix
	RequestTags map[string]string
	Resources   []Resource
}

// Resource is something that a call touches.
type Resource struct {
	ARN  string
	Tags map[string]string // nil if there is no such resource
}

// Service is the emulated EC2. Make one with New. It is safe for concurrent use.
type Service struct {
	cfg Config

	mu           sync.Mutex
	minted       int
	launches     int
	instances    map[string]*instance
	order        []*instance // by launch; terminated ones leave it when they are forgotten
	ended        []*instance // terminated, oldest first
	subnets      registry[*subnet]
	groups       registry[*group]
	images       registry[*image]
	templates    registry[*template]
	templateIDs  map[string]string // by name
	reservations registry[*reservation]
	placements   registry[*placementGroup]
	ssm          map[string]string
	setPrices    map[fault.Pool]float64 // Spot prices that are not synthetic
	tokens       map[string]answered
	rolled       int

	changes    []Change
	delivering bool
	observers  map[int]func(Change)
	observed   int
}

// New returns a Service with the default world for cfg.
func New(cfg Config) *Service {
	if cfg.Account == "" {
		cfg.Account = "123456789012"
	}
	if cfg.KeepFor == 0 {
		cfg.KeepFor = time.Hour
	}
	if cfg.Faults == nil {
		cfg.Faults = fault.New(cfg.Seed)
	}
	if cfg.Log == nil {
		cfg.Log = &fault.Log{}
	}
	if cfg.AddressesPer == nil {
		cfg.AddressesPer = func(*Type) int { return 1 }
	}
	s := &Service{
		cfg: cfg, instances: map[string]*instance{}, ssm: map[string]string{}, setPrices: map[fault.Pool]float64{},
		tokens: map[string]answered{}, templateIDs: map[string]string{}, observers: map[int]func(Change){},
	}
	s.addImages()
	if cfg.Cluster != "" {
		s.addNetwork(cfg.Cluster)
	}
	return s
}

// Faults returns what fails here.
func (s *Service) Faults() *fault.Injector { return s.cfg.Faults }

// Calls returns the log of calls.
func (s *Service) Calls() *fault.Log { return s.cfg.Log }

// mint returns a fresh id such as i-0123456789abcdef0. The caller holds s.mu.
func (s *Service) mint(prefix string) string {
	s.minted++
	return prefix + hexOf(17, fmt.Sprintf("%d/%s/%d", s.cfg.Seed, prefix, s.minted))
}

// mintUUID returns a fresh id in the shape of a UUID, as fleets and requests have.
func (s *Service) mintUUID() string {
	s.minted++
	h := hexOf(32, fmt.Sprintf("%d/uuid/%d", s.cfg.Seed, s.minted))
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

func hexOf(digits int, seed string) string {
	sum := sha256.Sum256([]byte(seed))
	return hex.EncodeToString(sum[:])[:digits]
}

type callerKey struct{}

// caller is what ServeHTTP knows of a request beyond its parameters.
type caller struct{ accessKeyID, requestID string }

// ErrDropped is what a caller in process gets for a reply that a fault loses; over HTTP the connection ends.
var ErrDropped = errors.New("connection dropped")

// call carries one call out: authorization, faults, the call itself under the lock, the log, and whether the reply is lost.
// do may fill in what the log should know.
func call[In, Out any](ctx context.Context, s *Service, in *In, do func(*fault.Call, *In) (*Out, error)) (*Out, error) {
	who, _ := ctx.Value(callerKey{}).(caller)
	action := strings.TrimSuffix(reflect.TypeFor[In]().Name(), "Input")
	entry := fault.Call{
		Time: time.Now(), RequestID: who.requestID, Service: "ec2", Action: action, AccessKeyID: who.accessKeyID,
		ClientToken: stringField(in, "ClientToken"),
	}
	out, err := func() (*Out, error) {
		if err := s.admit(ctx, who, action, in); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.HasPrefix(action, "Describe") && dryRun(in) {
			return nil, errDryRun()
		}
		return do(&entry, in)
	}()
	s.deliver()
	if err == nil {
		if lost, status := s.cfg.Faults.LostReply(action); lost {
			entry.LostReply = true
			out, err = nil, ErrDropped
			if status != 0 {
				err = &wire.Error{Code: "InternalError", Message: "An internal error has occurred", Status: status}
			}
		}
	}
	entry.Code = codeOf(err)
	s.cfg.Log.Add(entry)
	return out, err
}

// admit says whether a call may go on: first who may do what, then what the faults say.
func (s *Service) admit(ctx context.Context, who caller, action string, in any) error {
	s.mu.Lock()
	s.forget(time.Now())
	resources, tagged := s.touched(in)
	s.mu.Unlock()
	if s.cfg.Authorize != nil {
		access := Access{AccessKeyID: who.accessKeyID, Action: action, RequestTags: requestTags(in), Resources: resources}
		if err := s.cfg.Authorize(ctx, access); err != nil {
			return &wire.Error{
				Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation. " + err.Error(),
				Status: http.StatusForbidden,
			}
		}
	}
	if refused := s.cfg.Faults.Call(action, tagged); refused != nil {
		return refused
	}
	return nil
}

func codeOf(err error) string {
	var e *wire.Error
	switch {
	case err == nil, errors.Is(err, ErrDropped):
		return ""
	case errors.As(err, &e):
		return e.Code
	default:
		return "InternalError"
	}
}

func errDryRun() *wire.Error {
	return &wire.Error{
		Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.", Status: http.StatusPreconditionFailed,
	}
}

// dryRun says whether in, an input of any call, has DryRun set.
func dryRun(in any) bool {
	f := reflect.ValueOf(in).Elem().FieldByName("DryRun")
	return f.IsValid() && !f.IsNil() && f.Elem().Bool()
}

func stringField(in any, name string) string {
	f := reflect.ValueOf(in).Elem().FieldByName(name)
	if f.IsValid() && f.Kind() == reflect.Pointer && !f.IsNil() {
		return f.Elem().String()
	}
	return ""
}

func missing(parameter string) *wire.Error {
	return wire.Errorf("MissingParameter", "The request must contain the parameter %s", parameter)
}

func invalid(format string, args ...any) *wire.Error {
	return wire.Errorf("InvalidParameterValue", format, args...)
}

// unsupported refuses what this emulator does not do, rather than doing something else.
func unsupported(what string) *wire.Error {
	return wire.Errorf("UnsupportedOperation", "The emulator does not support %s.", what)
}

// options is what the SDK's client takes behind each input; a Service has none.
type options = func(*sdk.Options)
