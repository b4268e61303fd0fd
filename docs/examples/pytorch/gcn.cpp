// Trains a graph convolutional network (Kipf and Welling, arXiv:1609.02907) to find the communities
// of a random graph from a few labels. The program of the same name in pytorch/examples classifies
// the papers of Cora. The adjacency matrix is dense here, because there are no sparse tensors.
#include <iostream>

#include <axle/axle.h>

using axle::Tensor;
namespace nn = axle::nn;

constexpr std::int64_t kNodes = 400, kCommunities = 4, kFeatures = 16, kHidden = 16;

// [layer]
class GraphConv : public nn::Model<GraphConv> {
  public:
    GraphConv(std::int64_t in, std::int64_t out)
        : weight(nn::init::parameter({in, out})), bias(nn::init::parameter({out})) {
        nn::init::xavier_uniform_(weight);
        nn::init::zeros_(bias);
    }
    // Maps features of nodes [nodes, in] to [nodes, out]. The output of a node is a weighted sum
    // over the node and its neighbors.
    Tensor forward(const Tensor& x, const Tensor& adjacency) {
        return matmul(adjacency, matmul(x, weight)) + bias;
    }
    void visit(nn::Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight, bias;
};

class Gcn : public nn::Model<Gcn> {
  public:
    Tensor forward(const Tensor& x, const Tensor& adjacency) {
        const Tensor hidden = dropout(relu(gc1(x, adjacency)));
        return log_softmax(gc2(hidden, adjacency), 1);
    }
    void visit(nn::Visitor& v) override { v("gc1", gc1), v("gc2", gc2), v("dropout", dropout); }

    GraphConv gc1{kFeatures, kHidden}, gc2{kHidden, kCommunities};
    nn::Dropout dropout{0.5};
};
// [/layer]

// [graph]
// Returns the matrix D^-1/2 (A + I) D^-1/2 of a random graph. Nodes of the same community are
// connected with probability 0.05, and other nodes with probability 0.01. A is the adjacency
// matrix, and D has the degrees of A + I on its diagonal.
Tensor random_graph(const Tensor& labels) {
    const Tensor same = labels.unsqueeze(1) == labels;
    const Tensor edge =
        axle::rand({kNodes, kNodes}) < where(same, axle::tensor(0.05), axle::tensor(0.01));
    const Tensor upper = triu(edge.to(axle::f32), 1);
    const Tensor adjacency = upper + upper.t() + axle::eye(kNodes);
    const Tensor scale = adjacency.sum({1}).rsqrt();
    return scale.unsqueeze(1) * adjacency * scale;
}
// [/graph]

int main() {
    axle::manual_seed(1);
    const Tensor labels = axle::arange(kNodes) % kCommunities;
    const Tensor adjacency = random_graph(labels);
    // The features of a node contain little information about its community.
    const Tensor centers = axle::randn({kCommunities, kFeatures}) * 0.4;
    const Tensor features = centers.index_select(0, labels) + axle::randn({kNodes, kFeatures});
    const Tensor order = axle::randperm(kNodes);
    const Tensor known = order.slice(0, 0, 40), unknown = order.slice(0, 40);

    Gcn model;
    axle::optim::Adam optimizer(model.parameters(), {.lr = 1e-2, .weight_decay = 5e-4});
    const auto accuracy_of = [&](const Tensor& log_probs, const Tensor& nodes) {
        const Tensor found = log_probs.index_select(0, nodes).argmax(1);
        return (found == labels.index_select(0, nodes)).to(axle::f32).mean().item();
    };
    // [epoch]
    for (int epoch = 0; epoch < 200; ++epoch) {
        optimizer.zero_grad();
        const Tensor output = model(features, adjacency);
        const Tensor loss = nll_loss(output.index_select(0, known), labels.index_select(0, known));
        loss.backward();
        optimizer.step();
        if (epoch % 50 == 0)
            std::cout << "epoch " << epoch << ": loss " << loss.item() << ", accuracy "
                      << accuracy_of(output, known) << '\n';
    }
    // [/epoch]
    model.eval();
    const axle::NoGrad no_grad;
    const double accuracy = accuracy_of(model(features, adjacency), unknown);
    std::cout << "accuracy on nodes without a label: " << accuracy << '\n';
    return accuracy > 0.75 ? 0 : 1;
}
