"""The synchronisation methods from their papers' equations (docs/algorithms.md), on the flat parameters of replicas.

Nothing here knows islands, rounds on a network, or C++: a method sees the live parameters of all replicas after each
inner step (DataParallel the gradients before it), sets them, and says what the run publishes. Codecs are functions (values, sequence) -> values as decoded.
"""
import torch

# The flat buffer (docs/formats.md): embedding, layers in order, final norm, head.
WITHIN_LAYER = ["input_layernorm", "q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm",
                "post_attention_layernorm", "gate_proj", "up_proj", "down_proj"]


def layer_of(name):
    """None: outside the layers."""
    return int(name.split(".layers.")[1].split(".")[0]) if ".layers." in name else None


def flat_place(name):
    if ".layers." in name:
        return 1, layer_of(name), next(i for i, part in enumerate(WITHIN_LAYER) if f".{part}." in name)
    return {"model.embed_tokens.weight": 0, "model.norm.weight": 2, "lm_head.weight": 3}[name], 0, 0


class FlatReplica:
    """A replica's live parameters as one vector theta_m."""

    def __init__(self, model):
        named = dict(model.named_parameters())
        self.names = sorted(named, key=flat_place)
        self.parameters = [named[name] for name in self.names]

    def get(self):
        return torch.cat([p.detach().flatten() for p in self.parameters])

    @torch.no_grad()
    def set(self, values):
        for p, part in zip(self.parameters, values.split([p.numel() for p in self.parameters])):
            p.copy_(part.view_as(p))

    def gradient(self):
        return torch.cat([p.grad.flatten() for p in self.parameters])

    @torch.no_grad()
    def set_gradient(self, values):
        for p, part in zip(self.parameters, values.split([p.numel() for p in self.parameters])):
            p.grad.copy_(part.view_as(p))

    def fragments(self, num_fragments, pattern):
        """Index vectors. 0: embedding, final norm and head; whole layers over the others."""
        layers = [layer_of(name) for name in self.names]
        num_layers, others = 1 + max(layer for layer in layers if layer is not None), num_fragments - 1
        fragment = {"strided": lambda layer: 1 + layer % others,
                    "sequential": lambda layer: 1 + layer // (num_layers // others)}[pattern]
        which = torch.cat([torch.full((p.numel(),), 0 if layer is None else fragment(layer))
                           for layer, p in zip(layers, self.parameters)])
        return [(which == p).nonzero().squeeze(1) for p in range(num_fragments)]


def exact(values, sequence):
    return values


def mean(vectors):
    return sum(vectors) / len(vectors)


class Outer:
    """buf = mu buf + delta; theta - eta (delta + mu buf)"""

    def __init__(self, lr=0.7, momentum=0.9, nesterov=True):
        self.lr, self.momentum, self.nesterov, self.buffer = lr, momentum, nesterov, 0.0

    def step(self, theta, delta):
        self.buffer = self.momentum * self.buffer + delta
        return theta - self.lr * (delta + self.momentum * self.buffer if self.nesterov else self.buffer)


class DataParallel:
    """sent_m = C(g_m + e_m);  e_m = g_m + e_m - sent_m;  g = mean_m sent_m, before the clip and the inner step"""

    def __init__(self, replicas, steps, codec, feedback=True):
        self.replicas, self.codec, self.feedback = replicas, codec, feedback
        self.residuals = [torch.zeros_like(r.get()) for r in replicas]
        self.published = replicas[0].get()

    def reduce_gradients(self, step):
        corrected = [r.gradient() + e for r, e in zip(self.replicas, self.residuals)]
        sent = [self.codec(c, step - 1) for c in corrected]
        if self.feedback:
            self.residuals = [c - s for c, s in zip(corrected, sent)]
        for r in self.replicas:
            r.set_gradient(mean(sent))

    def after_step(self, step):
        self.published = self.replicas[0].get()


class DiLoCo:
    """delta = mean_m C(theta - theta_m);  theta = OuterOpt(theta, delta);  theta_m = theta"""

    def __init__(self, replicas, steps, every, codec, mean_codec=exact, **outer):
        self.replicas, self.every, self.codec, self.mean_codec = replicas, every, codec, mean_codec
        self.outer, self.published = Outer(**outer), replicas[0].get()

    def after_step(self, step):
        if step % self.every:
            return
        sequence = step // self.every - 1
        delta = mean([self.codec(self.published - r.get(), sequence) for r in self.replicas])
        self.published = self.outer.step(self.published, self.mean_codec(delta, sequence))
        for r in self.replicas:
            r.set(self.published)


class StreamingDiLoCo:
    """After step t with (t - t_p) mod H = 0, t - t_p >= H:  delta_p = mean_m (g_p - theta_m,p)
    after step t + tau:  g_p = OuterOpt_p(g_p, delta_p);  theta_m,p = alpha theta_m,p + (1 - alpha) g_p
    After the last step what is on its way is applied, and every fragment sent once more."""

    def __init__(self, replicas, steps, every, fragments, tau, alpha, pattern="strided", **outer):
        self.replicas, self.steps, self.every, self.tau, self.alpha = replicas, steps, every, tau, alpha
        self.fragments = replicas[0].fragments(fragments, pattern)
        self.offsets = [p * (every // fragments) for p in range(fragments)]
        self.outer = [Outer(**outer) for _ in range(fragments)]
        self.published = replicas[0].get()
        self.flights = []  # (step of arrival, p, delta_p)

    def after_step(self, step):
        last = step == self.steps
        self.apply(step, last)
        for p, offset in enumerate(self.offsets):
            if last or ((step - offset) % self.every == 0 and step - offset >= self.every):
                index = self.fragments[p]
                delta = mean([self.published[index] - r.get()[index] for r in self.replicas])
                self.flights.append((step + self.tau, p, delta))
        self.apply(step, last)

    def apply(self, step, everything):
        arrived = [flight for flight in self.flights if everything or flight[0] == step]
        self.flights = [flight for flight in self.flights if not (everything or flight[0] == step)]
        for _, p, delta in arrived:
            index, published = self.fragments[p], self.published.clone()
            published[index] = self.outer[p].step(published[index], delta)
            self.published = published
            for r in self.replicas:
                theta = r.get()
                theta[index] = self.alpha * theta[index] + (1 - self.alpha) * published[index]
                r.set(theta)


class EagerDiLoCo:
    """eager:  d_m = mean D^(k-1) + (D_m^k - D_m^(k-1)) / M;  delayed:  d_m = mean D^(k-1)
    theta_m = OuterOpt_m(theta_m, d_m). Published is the mean of all theta_m, one period late. At the end the part of
    the last mean that has not been applied is one more step of that mean, which all replicas take."""

    def __init__(self, replicas, steps, every, eager, **outer):
        self.replicas, self.steps, self.every = replicas, steps, every
        self.own_share = 1 / len(replicas) if eager else 0.0
        self.outer = [Outer(**outer) for _ in replicas]
        self.theta = [r.get() for r in replicas]
        self.before = [torch.zeros_like(self.theta[0]) for _ in replicas]  # D_m^(k-1)
        self.published = self.theta[0]

    def after_step(self, step):
        if step % self.every:
            return
        fresh = [theta - r.get() for theta, r in zip(self.theta, self.replicas)]
        stale = mean(self.before)
        self.published = mean(self.theta)
        self.theta = [outer.step(theta, stale + self.own_share * (new - old))
                      for outer, theta, new, old in zip(self.outer, self.theta, fresh, self.before)]
        self.before = fresh
        if step == self.steps:
            of_mean = self.outer[0]
            of_mean.buffer = mean([outer.buffer for outer in self.outer])
            self.published = of_mean.step(mean(self.theta), (1 - self.own_share) * mean(fresh))
            self.theta = [self.published] * len(self.replicas)
        for theta, r in zip(self.theta, self.replicas):
            r.set(theta)


class SparseLoCo:
    """c_m = beta e_m + (theta - theta_m);  sent_m = C(c_m);  e_m = c_m - sent_m;  theta = theta - eta mean_m sent_m"""

    def __init__(self, replicas, steps, every, codec, decay, lr):
        self.replicas, self.every, self.codec, self.decay, self.lr = replicas, every, codec, decay, lr
        self.published = replicas[0].get()
        self.residuals = [torch.zeros_like(self.published) for _ in replicas]

    def after_step(self, step):
        if step % self.every:
            return
        sequence = step // self.every - 1
        corrected = [self.decay * e + (self.published - r.get()) for e, r in zip(self.residuals, self.replicas)]
        sent = [self.codec(c, sequence) for c in corrected]
        self.residuals = [c - s for c, s in zip(corrected, sent)]
        self.published = self.published - self.lr * mean(sent)
        for r in self.replicas:
            r.set(self.published)


class CocktailSgd:
    """P_m = C(x_m - g);  Q = C(mean_m P_m + e);  e = mean_m P_m + e - Q
    x_m = x_m + Q - P_m;  g = g + Q                    at once (delay 0) or after the next inner step (delay 1)
    After the last step the differences are exchanged with an exact C, at once."""

    def __init__(self, replicas, steps, codec, delay, owner_residual=True):
        self.replicas, self.steps, self.codec, self.delay = replicas, steps, codec, delay
        self.owner_residual = owner_residual
        self.published = replicas[0].get()
        self.residual = torch.zeros_like(self.published)
        self.flight, self.sequence = None, 0

    def after_step(self, step):
        last = step == self.steps
        self.arrive()
        self.send(exact if last else self.codec)
        if last or self.delay == 0:
            self.arrive()

    def send(self, codec):
        parts = [codec(r.get() - self.published, self.sequence) for r in self.replicas]
        both = mean(parts) + self.residual
        decoded = codec(both, self.sequence)
        if self.owner_residual:
            self.residual = both - decoded
        self.flight = parts, decoded
        self.sequence += 1

    def arrive(self):
        if self.flight is None:
            return
        parts, decoded = self.flight
        for part, r in zip(parts, self.replicas):
            r.set(r.get() + decoded - part)
        self.published = self.published + decoded
        self.flight = None
